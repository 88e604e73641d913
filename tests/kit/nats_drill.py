"""Readings into a gateway on JetStream, and the account of what came out: shared by the benchmark and the tests.

The account is made from the server alone (released messages and keys), by a second implementation: what every stream
released is run through the policy and the Bayes step, and memory, belief and meter must be what the keys hold. A fork
of the memory, a release drawn twice or one that was published and not committed would show.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from patience import Patience
from veilstream.artefact import Artefact
from veilstream.gateway.nats.client import Link, LinkSettings, Rejected, Request, Unavailable
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import binding_of
from veilstream.gateway.nats.ledger import Ledger, Record
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.space import Space
from veilstream.model.problem import leakage, next_prior

AT_ONCE = 500
logging.getLogger("veilstream.nats").addHandler(logging.NullHandler())  # the drill speaks in numbers


def worker(
    policy: Path, urls: Collection[str], log: Path, *options: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """`veil serve POLICY --nats URLS` as a process of its own."""
    code = "from veilstream.apps.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(policy), "--nats", ",".join(urls), *options]
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **(environment or {})})


async def connected(urls: Collection[str]) -> Link:
    return await Link.open(LinkSettings(tuple(urls)))


async def feed(
    link: Link, names: Names, streams: int, steps: Collection[int], between: Callable[[], None] = lambda: None
) -> int:
    """One reading of every stream for every step, in order, each confirmed; how many had to be sent again."""
    again = 0
    for step in steps:
        body = [json.dumps({"t": step, "value": (7 * i + 3 * step) % 16}).encode() for i in range(streams)]
        waiting = list(range(streams))
        while waiting:
            left = []
            for start in range(0, len(waiting), AT_ONCE):
                these = waiting[start : start + AT_ONCE]
                requests: list[Request] = [
                    (names.reading(DEFAULT_SPACE, f"s{i}"), body[i], {"Nats-Msg-Id": f"{i}/{step}"}) for i in these
                ]
                for i, answer in zip(these, await link.ask(requests), strict=True):
                    if not isinstance(answer, dict):
                        left.append(i)
            again += len(left)
            waiting = left
            if left:
                await asyncio.sleep(0.2)
        between()
    return again


async def count(link: Link, stream: str) -> int:
    """Messages in a stream; -1 while it cannot be asked."""
    try:
        return int((await link.api(f"STREAM.INFO.{stream}"))["state"]["messages"])
    except (Unavailable, Rejected):
        return -1


async def until(link: Link, stream: str, messages: int, timeout_s: float) -> int:
    """Wait for a number of messages; how many there are then."""
    patience = Patience(timeout_s)
    while (n := await count(link, stream)) != messages and not patience.over:
        await asyncio.sleep(0.1)
    return n


async def everything(link: Link, stream: str) -> list[dict[str, Any]]:
    """Every message that a stream still has: subject, payload, time."""
    state = (await link.api(f"STREAM.INFO.{stream}"))["state"]
    numbers = range(state["first_seq"], state["last_seq"] + 1) if state["messages"] else range(0)
    out = []
    for start in range(0, len(numbers), AT_ONCE):
        call = f"$JS.API.STREAM.MSG.GET.{stream}"
        requests: list[Request] = [
            (call, msgspec.json.encode({"seq": n}), None) for n in numbers[start : start + AT_ONCE]
        ]
        for answer in await link.ask(requests, 30):
            if isinstance(answer, Rejected):
                continue  # deleted
            if isinstance(answer, Unavailable):
                raise answer
            found = answer["message"]
            out.append({"subject": found["subject"], "data": b64decode(found.get("data", "")), "time": found["time"]})
    return out


async def account(link: Link, names: Names, seal: Seal, artefact: Artefact, streams: int, steps: int) -> dict[str, int]:
    """What is wrong, as numbers that must all be 0, beside what there is."""
    messages = await everything(link, names.releases)
    seen: Counter[tuple[str, int]] = Counter()
    released: dict[str, dict[int, bytes]] = {}
    for m in messages:
        body = json.loads(m["data"])
        seen[body["stream"], body["t"]] += 1
        released.setdefault(body["stream"], {})[body["t"]] = m["data"]
    wanted = {(f"s{i}", t) for i in range(streams) for t in range(steps)}
    ledger = Ledger(link, names, seal, {DEFAULT_SPACE: binding_of(Space(artefact))})
    keys = [(DEFAULT_SPACE, f"s{i}") for i in range(streams)]
    records = (await ledger.lend(keys)).records
    forked = wrong_totals = wrong_logs = 0
    for key, record in records.items():
        same_memory, same_totals, same_log = agrees(artefact, record, released.get(key[1], {}))
        forked += not same_memory
        wrong_totals += not same_totals
        wrong_logs += not same_log
    return {
        "readings": len(wanted),
        "releases": len(messages),
        "missing": len(wanted - set(seen)),
        "unasked": len(set(seen) - wanted),
        "twice": sum(n - 1 for n in seen.values()),
        "unread_keys": len(keys) - len(records),
        "forked_memories": forked,
        "wrong_totals": wrong_totals,
        "logs_that_differ": wrong_logs,
    }


def agrees(artefact: Artefact, record: Record, released: dict[int, bytes]) -> tuple[bool, bool, bool]:
    """Whether a stream's key is what its releases (by step) make it: memory and belief, meter, log."""
    policy, problem = artefact.policy, artefact.problem
    assert policy is not None
    assert problem is not None
    memory, belief, total, totals = policy.start(1), problem.chain.initial[None], 0.0, True
    for step in sorted(released):
        sent = json.loads(released[step])
        a, y = policy.channel(memory), np.array([sent["released"]])
        total += float(leakage(belief, a)[0])
        totals &= abs(total - sent["leaked_bits"]) <= 2e-6  # six decimals are sent
        memory, belief = policy.update(memory, y, a), next_prior(belief, a, y, problem.chain.transition)
    s = record.stream
    kept = s.memory is not None and s.belief is not None and s.last_step == max(released, default=None)
    if kept:
        assert s.belief is not None
        kept = s.memory == np.ascontiguousarray(memory).tobytes()
        kept = kept and np.allclose(np.frombuffer(s.belief), belief[0], atol=1e-9)
    return kept, totals and abs(total - s.total) < 1e-6, all(released.get(t) == m for t, m in record.log)


FAULTS = ("missing", "unasked", "twice", "unread_keys", "forked_memories", "wrong_totals", "logs_that_differ")
