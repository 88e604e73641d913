"""The streams, the bucket and the consumers: made if they are missing, refused if they cannot keep the promises."""

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from veilstream.errors import InputError
from veilstream.gateway.nats.client import NANOSECONDS, Link, LinkSettings, Rejected, Unavailable
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.names import Names
from veilstream.gateway.records import Binding, OutFormat
from veilstream.gateway.space import Space

log = logging.getLogger("veilstream.nats")
SCHEMA = 1
BATCH = 256  # messages of a partition that are taken at once, and not yet acknowledged
ACK_WAIT_S = 5  # after that, what a dead worker held is given to another
PARTITIONS, MOST_PARTITIONS = 16, 256
REPLICAS = (1, 3, 5)
MAKE_S = 10.0  # for an answer when something is made
ATTEMPTS, AGAIN_S = 10, 0.5  # to find or make it all
DUPLICATES_S, LEAST_DUPLICATES_S = 600, 60  # how long a release published again is recognised
READINGS_AGE_S = 24 * 3600  # true values that nobody took are forgotten
RELEASES_AGE_S = 7 * 24 * 3600
UNHANDLED, UNHANDLED_AGE_S = 1000, 30 * 24 * 3600  # that are kept, private
READER = "service"  # the consumer by which the other side reads releases: it may make none itself
NOT_FOUND, NOT_CLUSTERED, NO_PEERS, EXISTS = 10059, 10074, 10005, 10058
NO_KEY, NO_JETSTREAM = 10037, (10039, 10076)
Config = dict[str, Any]  # of a stream, as JetStream says it
Promises = dict[str, list[Any]]  # of every space: policy, chain and meter, ceiling, clock


@dataclass(frozen=True)
class NatsSettings:
    key_file: str  # seals what workers write for each other; the same for all
    link: LinkSettings = LinkSettings()  # noqa: RUF009  # frozen
    names: Names = Names()  # noqa: RUF009  # frozen
    partitions: int | None = None  # None: as they are, or the default
    replicas: int | None = None
    rebind: bool = False  # the memory belongs to this policy from now on
    form: OutFormat = "auto"


@dataclass(frozen=True)
class Layout:
    names: Names
    partitions: int
    replicas: int
    seal: Seal


class Foreign(InputError):
    """The bucket's policy was not written by a worker with our key."""

    def __init__(self, prefix: str, revision: int) -> None:
        super().__init__(
            f"the memory of {prefix!r} is not sealed with this key: give all workers the same `key_file=FILE`. If this "
            "is the one, somebody wrote there: start one worker with `rebind=True` (steps and bits so far are kept)"
        )
        self.revision = revision


async def prepare(link: Link, s: NatsSettings, promises: Promises) -> Layout:
    """Everything a worker needs, found or made."""
    if s.partitions is not None and not 1 <= s.partitions <= MOST_PARTITIONS:
        raise InputError(f"`partitions` must be from 1 to {MOST_PARTITIONS}, found {s.partitions}")
    if s.replicas not in (None, *REPLICAS):
        raise InputError(f"`replicas` must be 1, 3 or 5, found {s.replicas}")
    where = link.settings.shown
    for attempt in range(ATTEMPTS):  # several workers may be at it, and a young cluster elects its leaders
        try:
            n, kept = await _streams(link, s.names, s.partitions, s.replicas)
            layout = Layout(s.names, n, kept, await _seal(link, s.names, s.key_file))
            await _consumers(link, layout)
            await bind(link, layout, promises, s.rebind)
            return layout
        except Rejected as error:
            if error.err_code in NO_JETSTREAM:
                raise InputError(f"the NATS server at {where} has JetStream off: start it with -js") from None
            raise InputError(f"JetStream at {where} refused: {error}") from None
        except Unavailable as error:
            if link.denied:
                raise InputError(f"NATS at {where}: {link.denied}") from None
            log.warning("jetstream_not_ready", extra={"reason": str(error), "attempt": attempt + 1})
            await asyncio.sleep(AGAIN_S)
    raise InputError(f"JetStream at {where} does not answer: is it on (-js), and has it a quorum?")


async def _streams(link: Link, names: Names, partitions: int | None, replicas: int | None) -> tuple[int, int]:
    """How many partitions and replicas they have."""
    source, spread = f"{names.prefix}.in.*.*", _spread(names, partitions or PARTITIONS)
    once = {"max_msgs_per_subject": 1, "discard": "new", "allow_rollup_hdrs": True, "deny_delete": True, "max_age": 0}
    queue = {
        "retention": "workqueue",
        "subject_transform": {"src": source, "dest": spread},
        "max_age": READINGS_AGE_S * NANOSECONDS,
    }
    few = {"max_msgs": UNHANDLED, "max_age": UNHANDLED_AGE_S * NANOSECONDS}
    known = {"duplicate_window": DUPLICATES_S * NANOSECONDS, "max_age": RELEASES_AGE_S * NANOSECONDS}
    memory = await _stream(link, replicas, names.memory, f"$KV.{names.prefix}-memory.>", once)
    readings = await _stream(link, replicas, names.readings, source, queue)
    releases = await _stream(link, replicas, names.releases, f"{names.prefix}.out.*.*", known)
    await _stream(link, replicas, names.unhandled, names.unhandled_subject, few)
    n = _check(names, memory, readings, releases)
    if partitions is not None and partitions != n:
        raise InputError(f"the stream {names.readings} has {n} partitions, `partitions` says {partitions}")
    kept = {c["name"]: c["num_replicas"] for c in (memory, readings, releases)}
    if replicas is not None and set(kept.values()) != {replicas}:
        raise InputError(f"`replicas={replicas}`, but the streams have {kept}; edit them with `nats stream edit`")
    return n, memory["num_replicas"]


async def _seal(link: Link, names: Names, key_file: str) -> Seal:
    """The workers' key. Made only where nothing is sealed yet: elsewhere it would be another one."""
    if not os.path.exists(key_file) and await _last(link, names) is not None:
        raise InputError(
            f"there is no key in {key_file}, and the memory of {names.prefix!r} is sealed: copy the key of another "
            "worker here, or name it with `key_file=FILE`"
        )
    return Seal.of_file(key_file)


def _spread(names: Names, partitions: int) -> str:
    """Where a reading is kept: by space and stream over so many partitions."""
    return f"{names.prefix}.part.{{{{partition({partitions},1,2)}}}}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}"


def _check(names: Names, memory: Config, readings: Config, releases: Config) -> int:
    """Raises unless the streams as they are keep what is promised; how many partitions they have."""
    pattern = re.escape(_spread(names, 0)).replace(r"\(0,", r"\((\d+),")
    found = re.fullmatch(pattern, readings.get("subject_transform", {}).get("dest", ""))
    target = f"{names.prefix}.out.*.*"
    endless = memory["max_age"] == 0 and memory["max_bytes"] == memory["max_msgs"] == -1
    needs = {
        f"{names.readings} must have work-queue retention": readings["retention"] == "workqueue",
        f"{names.readings} must spread its subjects over partitions": found is not None,
        f"{names.memory} must keep everything (no age, size or count limit): a memory that is lost is a second draw": (
            endless
        ),
        f"{names.memory} must be on file": memory["storage"] == "file",
        f"{names.memory} must discard new, not old": memory["discard"] == "new",
        f"{names.releases} must drop duplicates for a minute or more": (
            releases["duplicate_window"] >= LEAST_DUPLICATES_S * NANOSECONDS
        ),
        f"{names.releases} must take {target}": target in releases["subjects"],
    }
    for need, met in needs.items():
        if not met:
            raise InputError(f"the stream {need}; edit or delete it, or take another `prefix`")
    assert found is not None
    return int(found[1])


async def _stream(link: Link, replicas: int | None, name: str, subject: str, config: Config) -> Config:
    """Its configuration as it is; made with three replicas, or one where there is no cluster, unless told."""
    config = {"subjects": [subject], "storage": "file", "max_msgs": -1, "max_bytes": -1, **config}
    try:
        return dict((await link.api(f"STREAM.INFO.{name}"))["config"])
    except Rejected as error:
        if error.err_code != NOT_FOUND:
            raise
    for n in [replicas] if replicas else [3, 1]:
        try:
            made = await link.api(f"STREAM.CREATE.{name}", MAKE_S, name=name, **config, num_replicas=n)
            log.info("stream_made", extra={"stream": name, "replicas": n})
            return dict(made["config"])
        except Rejected as error:
            if error.err_code == EXISTS:
                raise Unavailable("another worker makes it") from None
            if error.err_code not in (NOT_CLUSTERED, NO_PEERS) or n == 1:
                raise
            if replicas is not None:
                raise InputError(f"this NATS cluster is too small for `replicas={replicas}`: {error}") from None
    raise AssertionError


def consumer(partition: int) -> str:
    return f"p{partition}"


async def _consumers(link: Link, layout: Layout) -> None:
    """One for each partition, and one for who reads the releases."""
    for p in range(layout.partitions):
        await partition_consumer(link, layout, p)
    await _consumer(link, layout.names.releases, READER, {"filter_subject": f"{layout.names.prefix}.out.*.*"})


async def partition_consumer(link: Link, layout: Layout, partition: int) -> None:
    """Found or made; readings of one stream are all in one."""
    config = {
        "ack_wait": ACK_WAIT_S * NANOSECONDS,
        "max_ack_pending": BATCH,
        "filter_subject": layout.names.partition(partition),
    }
    await _consumer(link, layout.names.readings, consumer(partition), config)


async def _consumer(link: Link, stream: str, name: str, config: Config) -> None:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", "max_deliver": -1, **config}
    try:
        found = (await link.api(f"CONSUMER.INFO.{stream}.{name}"))["config"]
    except Rejected:
        made = await link.api(f"CONSUMER.CREATE.{stream}.{name}", MAKE_S, stream_name=stream, config=config)
        found = made["config"]
    wrong = [k for k in ("filter_subject", "ack_policy", "max_deliver") if found.get(k) != config[k]]
    if wrong:
        raise InputError(f"the consumer {name} of {stream} has another {wrong[0]}; delete it, or take another `prefix`")


# --- the policy -----------------------------------------------------------------------------------------------


def binding_of(space: Space) -> Binding:
    """What the memory of a stream is good for: beliefs are of the chain, and of the meter that keeps them."""
    return Binding(space.binding.policy, f"{space.binding.chain} {type(space.mechanism.meter).__name__}")


def promises_of(spaces: Mapping[str, Space], clock: bool = False) -> Promises:
    """What all workers must agree on."""
    bindings = {name: binding_of(s) for name, s in spaces.items()}
    return {name: [b.policy, b.chain, spaces[name].ceiling, clock] for name, b in bindings.items()}


async def bind(link: Link, layout: Layout, promises: Promises, rebind: bool = False) -> None:
    """The bucket belongs to these policies; workers with different ones must not share it."""
    names = layout.names
    try:
        revision, found = await bound(link, layout)
    except Foreign as foreign:
        if not rebind:
            raise
        revision, found = foreign.revision, None
    if found == promises:
        return
    if found is not None and not rebind:
        raise InputError(
            f"the memory of {names.prefix!r} is bound to another policy, ceiling, meter or clock; all workers must run "
            "the same. To change it (steps and bits so far are kept) stop them and start one with `rebind=True`"
        )
    body = json.dumps({"schema": SCHEMA, "spaces": promises}).encode()
    try:
        await link.request(layout.seal.record(names.meta, body, revision))
    except Rejected:
        raise Unavailable("another worker binds it") from None


async def bound(link: Link, layout: Layout) -> tuple[int, Promises | None]:
    """Revision and promises of the bucket; raises `Foreign` if what is there was not sealed by us."""
    names, found = layout.names, await _last(link, layout.names)
    if found is None:
        return 0, None
    body = layout.seal.recorded(names.meta, found)
    if body is None:
        raise Foreign(names.prefix, found["seq"])
    meta = json.loads(body)
    if meta["schema"] != SCHEMA:
        raise InputError(f"the memory of {names.prefix!r} has schema {meta['schema']}, this version reads {SCHEMA}")
    return found["seq"], meta["spaces"]


async def _last(link: Link, names: Names) -> Config | None:
    """What the bucket says of the policy, as it is stored."""
    try:
        found: Config = (await link.api(f"STREAM.MSG.GET.{names.memory}", last_by_subj=names.meta))["message"]
        return found
    except Rejected as error:
        if error.err_code == NO_KEY:
            return None
        raise
