"""The gateway on NATS JetStream: promises against a store that fails in every way, a real server, a real cluster."""

import asyncio
import json
import logging
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.workers import faults_of, opened, run_two_workers, short
from fakejetstream import FaultyLink, Server
from gatewaykit import artefact, wait_until
from natskit import NEEDS_SERVER, SEAL, Running, key_file, message, session_on
from veilcli import refused as refused_line
from veilcli import veil

import nats  # isort: skip

from veilstream.apps.bench.nats import cluster_in, kill_drill, ready
from veilstream.apps.bench.nats_accounts import ACCOUNTS, accounts
from veilstream.apps.bench.nats_drill import FAULTS, account, agrees, connected, everything, feed, until, worker
from veilstream.apps.bench.nats_server import NatsCluster
from veilstream.apps.cli import main
from veilstream.artefact import dumps, load
from veilstream.errors import InputError
from veilstream.gateway.kept import Binding, Stream, state_of
from veilstream.gateway.nats import layout as layout_module
from veilstream.gateway.nats import ledger as ledger_module
from veilstream.gateway.nats.clock import Clock
from veilstream.gateway.nats.layout import binding_of, consumer, prepare, promises_of
from veilstream.gateway.nats.ledger import Ledger, Record, decode, encode
from veilstream.gateway.nats.link import Link, LinkSettings, Puller
from veilstream.gateway.nats.members import owners
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names, partition_of, text, token
from veilstream.gateway.nats.partition import Partition
from veilstream.gateway.nats.seal import Seal
from veilstream.gateway.nats.worker import NatsGateway, NatsSettings
from veilstream.gateway.space import Space
from veilstream.gateway.tls import Tls

CANARY = 7.25  # a true value that must not be seen anywhere


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("nats") / "policy.veil")


# --- names and owners ------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_tokens_are_one_to_one_and_safe(name):
    found = token(name)
    assert text(found) == name
    assert found.isascii() and not set(found) & set(" .*>\t\r\n") and found


@given(st.text(alphabet="ab=4061FfG.é ", max_size=8))
def test_a_token_of_two_names_does_not_exist(found):
    name = text(found)
    assert name is None or token(name) == found


def test_the_partition_is_stripped_and_odd_subjects_are_refused():
    names = Names()
    assert names.parse("veil.part.3.default.a=2Eb") == ("default", "a.b")
    for subject in ("veil.part.3.default.a=2eb", "veil.part.3.default.=61", "veil.in.default.a", "veil.part.3.d.a.b"):
        assert names.parse(subject) is None
    with pytest.raises(InputError, match="`prefix`"):
        Names("a.b")


@given(st.integers(1, 64), st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=9))
def test_partitions_are_shared_evenly_and_the_same_by_all(partitions, workers):
    found = owners(partitions, sorted(workers))
    assert found == owners(partitions, sorted(workers, reverse=True))
    load = [found.count(w) for w in workers]
    assert sum(load) == partitions and max(load) <= -(-partitions // len(workers))


# --- a store that fails in every way ---------------------------------------------------------------------------


def reading(stream: str, step: int, value: float = CANARY):
    return message(stream, {"t": step, "value": value}, f"{stream}/{step}")


@pytest.mark.parametrize("seed", range(6))
def test_two_owners_and_lost_late_and_stale_answers_make_no_second_draw(art, seed, monkeypatch):
    monkeypatch.setattr(asyncio, "sleep", short(asyncio.sleep))
    rng, server = random.Random(seed), Server()
    conflicts = asyncio.run(run_two_workers(art, server, rng, 0.25, 30))
    assert conflicts > 20  # it was hard enough
    assert faults_of(art, server, 30) == []


def test_without_compare_and_set_the_same_run_is_found_out(art, monkeypatch):
    monkeypatch.setattr(asyncio, "sleep", short(asyncio.sleep))
    server = Server(compare=False)
    asyncio.run(run_two_workers(art, server, random.Random(0), 0.25, 30))
    assert faults_of(art, server, 30)


def test_a_commit_without_an_answer_is_found_in_the_log_and_not_drawn_again(art):
    server = Server()
    link = FaultyLink(server, random.Random(0), 0)

    class Lose:
        """The first write happens, its answer is lost; the next read tells."""

        def __init__(self):
            self.writes = 0

        async def ask(self, requests, timeout_s=0):
            answers = await link.ask(requests)
            for i, (subject, *_) in enumerate(requests):
                if subject.startswith("$KV."):
                    self.writes += 1
                    if self.writes == 1:
                        answers[i] = None
            return answers

    lose = Lose()
    g = session_on(art, lose)
    assert asyncio.run(g.handle([reading("a", 0)]))
    assert lose.writes == 1 and g.stats.repeated == 1 and g.stats.released == 0
    assert len(server.published["default.a.0"]) == 1


def test_a_write_refused_is_drawn_again_from_what_is_there(art):
    server = Server()
    a, b = (session_on(art, FaultyLink(server, random.Random(0), 0)) for _ in range(2))
    asyncio.run(a.handle([reading("s0", 0)]))
    asyncio.run(b.handle([reading("s0", 1)]))
    asyncio.run(a.handle([reading("s0", 2)]))  # its cache is behind
    assert a.ledger.conflicts == 1
    assert faults_of(art, server, 3, 1) == []
    asyncio.run(b.handle([reading("s0", 1, 3.0)]))  # another value for a step that has its release
    assert faults_of(art, server, 3, 1) == [] and b.stats.repeated == 1


def test_a_release_that_did_not_arrive_is_sent_again_before_its_reading_is_done(art):
    server = Server()
    link = FaultyLink(server, random.Random(0), 0)
    g = session_on(art, link)
    real, fail = link.ask, [True]

    async def ask(requests, timeout_s=0):
        if fail[0] and requests and requests[0][0].startswith("veil.out"):
            return [None] * len(requests)
        return await real(requests)

    link.ask = ask
    assert asyncio.run(g.handle([reading("s0", 0)])) == []  # committed, not published: not to be acknowledged
    fail[0] = False
    assert len(asyncio.run(g.handle([reading("s0", 0)]))) == 1
    assert faults_of(art, server, 1, 1) == []


def test_long_arrays_go_in_several_commits_and_the_log_holds_each(art, monkeypatch):
    monkeypatch.setattr(ledger_module, "MOST", 5)
    monkeypatch.setattr("veilstream.gateway.nats.session.MOST", 5)
    server = Server()
    g = session_on(art, FaultyLink(server, random.Random(0), 0))
    body = json.dumps([{"t": t, "value": 1} for t in range(12)]).encode()
    m = message("s0", body)
    assert asyncio.run(g.handle([m])) == [m]
    assert [len(ledger_module._decoder.decode(body)[-1]) for _, body in opened(server, "s0")] == [5, 9, 6]
    assert faults_of(art, server, 12, 1) == []


def test_a_tick_that_was_committed_and_not_published_is_published_by_the_next_owner(tmp_path):
    art, server = artefact(tmp_path / "clock.veil", period_s=60.0), Server()
    a, b = (session_on(art, FaultyLink(server, random.Random(0), 0), clock=True, now=lambda: 30.0) for _ in range(2))
    asyncio.run(a.handle([reading("s0", 12)]))  # t = 12 s: waits for the end of step 0
    assert a.stats.waiting == 1 and not server.published
    real, key = a.link.ask, (DEFAULT_SPACE, "s0")

    async def deaf(requests, timeout_s=0):
        lost = bool(requests) and requests[0][0].startswith("veil.out")
        return [None] * len(requests) if lost else await real(requests)

    a.link.ask = deaf
    assert asyncio.run(Clock(a, DEFAULT_SPACE)._tick(0, [key])) == ([], [key])  # and then it dies
    for step in (0, 0, 1):
        assert asyncio.run(Clock(b, DEFAULT_SPACE)._tick(step, [key])) == ([], [])
    payloads = [set(server.published[f"default.s0.{step}"]) for step in (0, 1)]
    assert [len(p) for p in payloads] == [1, 1] and len(server.published["default.s0.0"]) == 2
    revision, body = opened(server, "s0")[-1]
    record = decode(key, revision, body, binding_of(Space(art)))
    assert agrees(art, record, {step: next(iter(p)) for step, p in enumerate(payloads)}) == (True, True, True)


def test_what_is_refused_is_counted_and_done(art):
    g = session_on(art, FaultyLink(Server(), random.Random(0), 0))
    bad = [
        message("a", b"{"),
        SimpleNamespace(subject="veil.part.0.nowhere.a", data=b"{}", reply="2"),
        message("=61", b'{"t":1,"value":1}', "3"),
    ]
    assert asyncio.run(g.handle([*bad, reading("a", 5), reading("a", 1)]))[:3] == bad
    assert {k: n for k, n in g.stats.refused.items() if n} == {"unreadable": 1, "stream": 2, "late": 1}


def test_another_policy_keeps_steps_meter_and_log_but_not_the_memory():
    old, new, other = Binding("p", "c"), Binding("q", "c"), Binding("q", "d")
    stream = Stream("default", "a", 4, 7, 1.5, b"m", b"b", 3, None, -1, 2)
    record = Record(stream, 4, [(7, b"{}")])
    value = encode(record, old)
    assert decode(stream.key, 4, value, old) == record
    changed, moved = (decode(stream.key, 4, value, binding) for binding in (new, other))
    assert (changed.stream.memory, changed.stream.belief, changed.stream.state) == (None, b"b", 3)
    assert (moved.stream.memory, moved.stream.belief, moved.stream.state) == (None, None, -1)
    for r in (changed, moved):
        assert (r.stream.last_step, r.stream.total, r.log, r.stream.faults) == (7, 1.5, record.log, 2)
    assert decode(("default", "a"), 9, b"nonsense", old) is None


# --- a real server ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    cluster = NatsCluster(tmp_path_factory.mktemp("server"), 1)
    yield cluster
    cluster.stop()


def command(*args: str, **more) -> subprocess.CompletedProcess:
    code = "from veilstream.apps.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "serve", *args], capture_output=True, text=True, timeout=40, **more
    )


async def partitions(link, names: Names, workers: int) -> list[int]:
    """How many each worker owns, by their own word."""
    inbox = "_INBOX.test"
    answers = await link.nc.subscribe(inbox)
    await link.nc.publish(f"{names.prefix}.status", b"", inbox)
    found = [json.loads((await answers.next_msg(5)).data) for _ in range(workers)]
    await answers.unsubscribe()
    return [len(status["partitions"]) for status in found]


@NEEDS_SERVER
def test_one_server_two_workers_leaving_and_coming(art, server):
    """Readings go on while workers come and go; the account must be clean and nothing may be drawn twice."""
    names = Names("w2")

    async def drive():
        link = await connected(server.urls)
        with Running(art, server.urls, "w2", partitions=4) as first:
            await feed(link, names, 20, range(5))
            with Running(art, server.urls, "w2") as second:
                await feed(link, names, 20, range(5, 20))
                await until(link, names.releases, 400, 10)
                assert sorted(await partitions(link, names, 2)) == [2, 2]
            await feed(link, names, 20, range(20, 25))
            await until(link, names.releases, 500, 10)
            assert await partitions(link, names, 1) == [4]
            assert await until(link, names.readings, 0, 5) == 0  # true values are gone
            assert first.stats.released + second.stats.released == 500 and second.stats.released > 0
        found = await account(link, names, SEAL, art, 20, 25)
        await link.close()
        return found

    found = asyncio.run(drive())
    assert {k: found[k] for k in FAULTS} == dict.fromkeys(FAULTS, 0) and found["releases"] == 500


async def pulled(puller: Puller, n: int) -> list:
    """So many readings, within a few seconds on a busy machine."""
    got: list = []
    for _ in range(5):
        got += await puller.pull(n - len(got), 1.0) if len(got) < n else []
    assert len(got) == n
    return got


@NEEDS_SERVER
def test_what_a_dead_worker_holds_comes_first(art, server, monkeypatch):
    """It took the first readings and is gone: the new owner must wait for them, or their steps would be closed."""
    names = Names("order")
    monkeypatch.setattr(layout_module, "ACK_WAIT_S", 2)

    async def drive():
        link = await connected(server.urls)
        await prepare(link, names, promises_of({DEFAULT_SPACE: Space(art)}), key_file(), partitions=1)
        await feed(link, names, 3, range(4))
        dead = await Puller.open(link, names.readings, consumer(0))
        await pulled(dead, 6)  # steps 0 and 1, never acknowledged
        with Running(art, server.urls, "order") as g:
            await until(link, names.releases, 12, 10)
            refused = sum(g.stats.refused.values())
        out = [json.loads(m["data"])["t"] for m in await everything(link, names.releases)]
        found = await account(link, names, SEAL, art, 3, 4)
        await link.close()
        return refused, out, found

    refused, out, found = asyncio.run(drive())
    assert refused == 0 and out == sorted(out)
    assert {k: found[k] for k in FAULTS} == dict.fromkeys(FAULTS, 0)


@NEEDS_SERVER
def test_a_sleeper_drops_what_others_did_and_waits_for_what_they_hold(art, server, monkeypatch):
    """It wakes with readings that were released meanwhile; counting would let it overtake those in other hands."""
    names = Names("sleeper")
    monkeypatch.setattr(layout_module, "ACK_WAIT_S", 1)

    async def drive():
        link = await connected(server.urls)
        await prepare(link, names, promises_of({DEFAULT_SPACE: Space(art)}), key_file(), partitions=1)
        await feed(link, names, 3, range(2))
        sleeper = await Partition.open(session_on(art, link, names), 0, threading.Event())
        other = await Puller.open(link, names.readings, consumer(0))
        sleeper._add(await pulled(sleeper._puller, 6))
        assert sorted(sleeper._held) == [1, 2, 3, 4, 5, 6]
        with Running(art, server.urls, "sleeper"):
            await until(link, names.readings, 0, 10)
        await feed(link, names, 3, [2])
        await pulled(other, 3)
        await feed(link, names, 3, [3])
        sleeper._add(await pulled(sleeper._puller, 3))
        info = await link.api(f"CONSUMER.INFO.{names.readings}.p0")
        assert info["num_ack_pending"] <= len(sleeper._held)  # counting is fooled
        assert await sleeper._clear() == [] and sorted(sleeper._held) == [10, 11, 12]
        await asyncio.sleep(1.2)
        sleeper._add(await pulled(sleeper._puller, 3))
        clear = await sleeper._clear()
        await link.close()
        return clear

    assert asyncio.run(drive()) == [7, 8, 9, 10, 11, 12]


@NEEDS_SERVER
def test_names_that_no_subject_may_hold_travel(art, server):
    names, odd = Names("odd"), "a. *>/ä="

    async def drive():
        link = await connected(server.urls)
        with Running(art, server.urls, "odd", partitions=2):
            await link.request((names.reading(DEFAULT_SPACE, odd), b'{"t":1,"value":3}', None))
            await until(link, names.readings, 0, 10)
            out = await everything(link, names.releases)
        await link.close()
        return out

    (found,) = asyncio.run(drive())
    assert found["subject"] == f"odd.out.default.{token(odd)}" and json.loads(found["data"])["stream"] == odd


@NEEDS_SERVER
@pytest.mark.slow
def test_under_a_clock_every_stream_releases_once_per_step_through_a_kill(tmp_path, server):
    """Readings come for one step only; then a worker is killed, and the other ticks for all."""
    art = artefact(tmp_path / "clock.veil", period_s=1.0)
    names, streams = Names("clock"), [f"s{i}" for i in range(8)]

    async def drive():
        link = await connected(server.urls)
        options = ("--prefix", "clock", "--partitions", "4", "--clock")
        workers = [worker(tmp_path / "clock.veil", server.urls, tmp_path / f"{i}.log", *options) for i in range(2)]
        try:
            await ready(link, names, 2)
            await asyncio.sleep(1.1 - time.time() % 1)  # early in a step: the readings are for this one
            reading = json.dumps({"t": time.time(), "value": 3}).encode()
            await link.ask([(names.reading(DEFAULT_SPACE, name), reading, None) for name in streams])
            await asyncio.sleep(3)
            workers[0].kill()
            await asyncio.sleep(4.5)
        finally:
            for process in workers:
                process.terminate()
                process.wait(10)
        assert [process.returncode for process in workers] == [-9, 0]
        out = await everything(link, names.releases)
        seal = Seal.of_file(str(tmp_path / "clock.veil.key"))
        ledger = Ledger(link, names, seal, {DEFAULT_SPACE: binding_of(Space(art))})
        kept = (await ledger.lend([(DEFAULT_SPACE, name) for name in streams])).records
        info = await link.api(f"STREAM.INFO.{names.memory}", subjects_filter="$KV.clock-memory.*.*")
        await link.close()
        return out, kept, info["state"]["subjects"]

    out, kept, keys = asyncio.run(drive())
    assert len(keys) == len(streams)
    released = {name: {} for name in streams}
    for m in out:
        body = json.loads(m["data"])
        assert body["t"] not in released[body["stream"]], "twice"
        released[body["stream"]][body["t"]] = m["data"]
    for name, steps in released.items():
        assert len(steps) >= 6 and max(steps) - min(steps) + 1 == len(steps), "a step without a release"
        assert agrees(art, kept[DEFAULT_SPACE, name], steps) == (True, True, True)


@NEEDS_SERVER
def test_we_know_the_servers_partitions(server):
    names = Names("hash")

    async def drive():
        link = await connected(server.urls)
        await prepare(link, names, {}, key_file(), partitions=7)
        subjects = [names.reading(f"space {i % 3}", f"s{i}/é") for i in range(40)]
        await link.ask([(s, b"{}", None) for s in subjects])
        found = [m["subject"] for m in await everything(link, names.readings)]
        await link.close()
        return found

    found = asyncio.run(drive())
    assert len(found) == 40
    for subject in found:
        assert partition_of(*names.parse(subject), 7) == int(subject.split(".")[2])


@NEEDS_SERVER
def test_bad_input_gives_one_clear_line(art, tmp_path, server, monkeypatch):
    """Unreachable server, wrong credentials, JetStream off, another policy, a bucket that forgets."""
    policy = str(tmp_path / "p.veil")
    artefact(tmp_path / "p.veil", seed=3)
    locked = NatsCluster(tmp_path / "locked", 1, 'authorization { user: gate, password: "right" }')
    try:
        url = locked.urls[0]
        wrong = url.replace("//", "//gate:secret@")
        for settings, line in (
            ({"urls": ("nats://127.0.0.1:1",)}, "cannot reach a NATS server at 127.0.0.1:1: Connection refused"),
            ({"urls": (url,), "user": "gate", "password": "secret"}, "refused these credentials"),
            ({"urls": (wrong,)}, "refused these credentials"),
        ):
            with pytest.raises(InputError, match=line) as caught:
                NatsGateway({DEFAULT_SPACE: Space(art)}, NatsSettings(key_file(), LinkSettings(**settings))).probe()
            assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
        found = command(policy, "--nats", url, "--user", "gate", env=_environment(VEIL_NATS_PASSWORD="wrong"))
        assert found.returncode == 2 and "refused these credentials" in found.stderr
        assert "Traceback" not in found.stderr and "wrong" not in found.stderr and len(found.stderr.splitlines()) == 1

        async def log_in():
            await (await Link.open(LinkSettings((url,), user="gate", password="right"))).close()

        asyncio.run(log_in())  # the right one does get in
    finally:
        locked.stop()
    no_jetstream = NatsCluster(tmp_path / "plain", 1, jetstream=False)
    try:
        monkeypatch.setattr(layout_module, "ATTEMPTS", 2)
        refused(art, no_jetstream.urls, r"does not answer: is it on \(-js\)")
    finally:
        no_jetstream.stop()
    with Running(art, server.urls, "bound", partitions=2):
        refused(artefact(tmp_path / "q.veil", seed=3), server.urls, "bound to another policy", "bound")
        refused(art, server.urls, "bound to another policy, ceiling", "bound", ceiling=3.0)
        refused(art, server.urls, "is for streams without gaps", "bound", meter="table")
        refused(art, server.urls, "has 2 partitions", "bound", partitions=3)
        refused(art, server.urls, "too small for `replicas=3`", "big", replicas=3)


def refused(art, urls, line: str, prefix: str = "veil", ceiling=None, meter="exact", **more) -> None:
    settings = NatsSettings(key_file(), LinkSettings(tuple(urls)), Names(prefix), **more)
    with pytest.raises(InputError, match=line):
        NatsGateway({DEFAULT_SPACE: Space(art, ceiling, meter)}, settings).probe()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--nats", "http://x"], "--nats takes nats://HOST:PORT"),
        (["--nats", "x", "--http", "8080"], "--http does not go with --nats"),
        (["--nats", "x", "--clock"], "--clock needs a policy with a period"),
        (["--nats", "x", "--nats-creds", "no.creds"], "no credentials file"),
        (["--nats", "x", "--nats-creds", __file__], "is no NATS credentials file"),
        (["--nats", "x", "--space", "more"], "--space takes NAME=POLICY"),
        (["--nats", "x", "--prefix", "a b"], "--prefix takes"),
    ],
)
def test_bad_options_give_one_clear_line(tmp_path, args, line, monkeypatch, capsys):
    artefact(tmp_path / "p.veil")
    monkeypatch.setattr(sys, "argv", ["veil", "serve", str(tmp_path / "p.veil"), *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and line in capsys.readouterr().err


@NEEDS_SERVER
def test_tls(tmp_path, monkeypatch):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    try:
        name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
        subprocess.run([*make, *name], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl")
    cluster = NatsCluster(tmp_path, 1, f'tls {{ cert_file: "{cert}", key_file: "{key}" }}')

    async def connect(tls: Tls | None = None):
        link = await Link.open(LinkSettings((cluster.urls[0].replace("nats://", "tls://"),), tls=tls))
        found = await link.api("INFO")
        await link.close()
        return found

    try:
        assert "limits" in asyncio.run(connect(Tls(str(cert))))
        monkeypatch.setattr("veilstream.gateway.nats.link.CONNECT_S", 2.0)
        with pytest.raises(InputError, match=r"no TLS with the NATS server .*`ca_file=FILE`"):
            asyncio.run(connect())
        with pytest.raises(InputError, match="TLS files cannot be used"):
            Tls(str(tmp_path / "none.pem"))
    finally:
        cluster.stop()


def test_the_example_configuration_is_the_one_that_is_tested():
    example = (Path(__file__).parents[2] / "examples" / "gateway" / "nats.conf").read_text()
    assert example.endswith(f"\n{ACCOUNTS}") and "authorization" not in example


@NEEDS_SERVER
def test_the_example_configuration_keeps_readings_from_everyone_but_the_workers(art, tmp_path):
    """A worker works with its permissions; service and device hear neither readings nor memory, and cannot ask."""
    cluster = NatsCluster(tmp_path, 1, accounts())

    async def drive():
        others = {}
        heard: list[str] = []

        async def hear(m):
            heard.append(m.subject)

        for user in ("device", "service"):
            nc = await nats.connect(
                cluster.urls[0], user=user, password=f"{user}-password", inbox_prefix=f"_INBOX.{user}", error_cb=_quiet
            )
            for subject in ("veil.in.>", "_VEIL.>", "$KV.>", "veil.part.>", ">"):
                await nc.subscribe(subject, cb=hear)
            others[user] = nc
        wait = await others["service"].subscribe("veil.out.*.*")
        await others["service"].flush()
        js = others["device"].jetstream()
        for t in range(3):
            await js.publish("veil.in.default.ann", json.dumps({"t": t, "value": CANARY}).encode())
        out = [json.loads((await wait.next_msg(10)).data) for _ in range(3)]
        for call in ("STREAM.MSG.GET.veil-readings", "STREAM.MSG.GET.KV_veil-memory", "STREAM.INFO.KV_veil-memory"):
            with pytest.raises(nats.errors.TimeoutError):
                await others["service"].request(f"$JS.API.{call}", b'{"seq":1}', timeout=0.3)
        for nc in others.values():
            await nc.close()
        return out, heard

    settings = LinkSettings(tuple(cluster.urls), user="gate", password="gate-password")
    try:
        with Running(art, cluster.urls, "veil", settings, partitions=2):
            out, heard = asyncio.run(drive())
    finally:
        cluster.stop()
    assert [r["t"] for r in out] == [0, 1, 2] and heard == []


async def _quiet(error: Exception) -> None:
    """Permission errors are what is wanted."""


def _environment(**more: str) -> dict[str, str]:
    import os

    return {**os.environ, **more}


@NEEDS_SERVER
def test_a_bucket_that_forgets_is_refused_and_a_rebound_one_ends_the_others(art, tmp_path, server):
    names, promises = Names("forgets"), promises_of({DEFAULT_SPACE: Space(art)})

    async def refuse():
        link = await connected(server.urls)
        config = {"name": names.memory, "subjects": ["$KV.forgets-memory.>"], "max_age": 10**12, "discard": "new"}
        await link.api(f"STREAM.CREATE.{names.memory}", **config)
        try:
            with pytest.raises(InputError, match="a memory that is lost is a second draw"):
                await prepare(link, names, promises, key_file())
        finally:
            await link.close()

    asyncio.run(refuse())
    running = Running(art, server.urls, "rebound", partitions=1)
    with running, Running(artefact(tmp_path / "new.veil", seed=9), server.urls, "rebound", rebind=True):
        wait_until(lambda: running.error is not None, 10, "the end of the worker with the old policy")
    assert "another policy" in str(running.error)


def test_urls_are_shown_without_their_secrets():
    settings = LinkSettings(("nats://gate:secret@a:4222", "b"), password="hidden")
    assert settings.shown == "a:4222, b:4222" and "hidden" not in repr(settings)


# --- a cluster -------------------------------------------------------------------------------------------------


@NEEDS_SERVER
@pytest.mark.slow
def test_three_nodes_a_worker_and_a_node_killed(art, tmp_path):
    """2,000 readings on 50 streams: every one exactly one release, memory never forks, totals agree."""
    fresh = artefact(tmp_path / "policy.veil")
    with cluster_in(tmp_path, "cluster") as cluster:
        found = asyncio.run(kill_drill(tmp_path, fresh, cluster, streams=50, steps=40, workers=3, partitions=6))
    print("\n ", {k: found[k] for k in ("seed", "worker", "node", "releases", "seconds")})
    assert {k: found[k] for k in FAULTS} == dict.fromkeys(FAULTS, 0), found
    assert found["verdict"] == "ok" and found["releases"] == 2000


@NEEDS_SERVER
def test_the_owner_looks_at_the_memory_while_workers_run_with_the_key_alone(art, tmp_path, server, monkeypatch):
    """Each step counted once in the private sums; somebody without the key sees nothing."""
    monkeypatch.setattr(logging, "raiseExceptions", False)  # an earlier test's log may be closed
    names, path = Names("look"), tmp_path / "p.veil"
    path.write_bytes(dumps(art.policy, problem=art.problem)[1])

    async def drive():
        link = await connected(server.urls)
        await feed(link, names, 3, range(30))
        await until(link, names.releases, 90, 10)
        await link.close()

    where = ("--nats", ",".join(server.urls), "--prefix", "look")
    with Running(load(path), server.urls, "look", partitions=2, ceiling=50.0):
        asyncio.run(drive())
        done = veil("status", path, *where, "--nats-key", key_file(), "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        refused_line("status", path, *where, says="there is no key")
        other = tmp_path / "other.key"
        other.touch(0o600)
        other.write_text("ab" * 32)
        refused_line("status", path, *where, "--nats-key", other, says="not sealed with this key")
        refused_line("status", path, *where[:2], "--prefix", "no", "--nats-key", key_file(), says="NATS at")
    assert len(found["streams"]) == 3 and found["refused"] == []
    for s in found["streams"]:
        assert (s["last_step"], s["felt_steps"], s["transitions"], s["ceiling_bits"]) == (29, 30, 29, 50.0)
        assert s["leaked_bits"] > 0 and s["felt"]["value"] >= 0 and s["drift"]["same"] == "too little later data to say"


def test_a_record_of_the_version_before_goes_on():
    binding, stream = Binding("p", "c"), Stream("s", "a", 7, last_step=3, total=1.0, memory=b"m", belief=b"b")
    old = msgspec.msgpack.encode((2, "p", "c", state_of(stream)[:-1], [(3, b"{}")]))
    assert decode(("s", "a"), 7, old, binding) == Record(stream, 7, [(3, b"{}")])
    assert decode(("s", "a"), 7, msgspec.msgpack.encode((1, "p", "c", state_of(stream), [])), binding) is None
