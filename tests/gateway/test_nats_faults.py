"""The gateway on NATS against a store that fails in every way, without a server."""

import asyncio
import json
import random
from types import SimpleNamespace

import msgspec
import pytest

from attack.workers import faults_of, opened, run_two_workers, short
from fakejetstream import FaultyLink, Server
from gatewaykit import artefact
from nats_drill import agrees
from natskit import message, session_on
from veilstream.gateway.nats import ledger as ledger_module
from veilstream.gateway.nats.layout import binding_of
from veilstream.gateway.nats.ledger import SCHEMA, Record, decode, encode
from veilstream.gateway.nats.names import DEFAULT_SPACE
from veilstream.gateway.nats.session import Clock
from veilstream.gateway.records import Binding, Private, Stream
from veilstream.gateway.space import Space

CANARY = 7.25  # a true value that must not be seen anywhere


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("nats") / "policy.veil")


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
    stream = Stream("default", "a", 4, 7, 1.5, b"m", b"b", Private(3, None, -1, 2))
    record = Record(stream, 4, [(7, b"{}")], old)
    value = encode(record)
    assert decode(stream.key, 4, value, old) == record
    changed, moved = (decode(stream.key, 4, value, binding) for binding in (new, other))
    assert (changed.stream.memory, changed.stream.belief, changed.stream.private.state) == (None, b"b", 3)
    assert (moved.stream.memory, moved.stream.belief, moved.stream.private.state) == (None, None, -1)
    for r in (changed, moved):
        assert (r.stream.last_step, r.stream.total, r.log, r.stream.private.faults) == (7, 1.5, record.log, 2)
    assert decode(("default", "a"), 9, b"nonsense", old) is None


def test_a_record_of_another_version_is_not_read():
    binding, stream = Binding("p", "c"), Stream("s", "a", 7, last_step=3, total=1.0, memory=b"m", belief=b"b")
    old = msgspec.msgpack.encode((3, "p", "c", stream.row(0), [(3, b"{}")]))
    assert decode(("s", "a"), 7, old, binding) is None
    assert decode(("s", "a"), 7, msgspec.msgpack.encode((3, "p", "c", stream, [])), binding) is None
    now = msgspec.msgpack.encode((SCHEMA, "p", "c", stream, []))
    assert decode(("s", "a"), 7, now, binding).stream == stream and decode(("s", "b"), 7, now, binding) is None
