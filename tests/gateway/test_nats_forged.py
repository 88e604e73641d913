"""Records on NATS that nobody of ours wrote, and the key that seals ours."""

import asyncio
import random
import stat
import threading
import time

import pytest

from fakejetstream import FaultyLink, Server
from gatewaykit import artefact
from nats_drill import connected, until
from natskit import ANN, NEEDS_SERVER, SEAL, VEIL, Running, key_file, message, released, send, session_on, stored
from patience import PATIENCE_S
from veilstream.errors import InputError
from veilstream.gateway.nats.client import Rejected
from veilstream.gateway.nats.integrity import FOLLOWS, Seal
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.nats.session import Clock


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("attacks") / "policy.veil")


# --- records that nobody of ours wrote ---------------------------------------------------------------------------


def forge(own: bytes, other: bytes) -> dict[str, bytes]:
    flipped = bytearray(own)
    flipped[20] ^= 1
    return {
        "empty": b"",
        "an answer of the server": b'{"stream":"veil-readings","seq":7}',
        "of another stream": other,
        "one bit": bytes(flipped),
        "cut": own[:-1],
        "another key": Seal(bytes(32)).put(f"{ANN} 1", own[:-32]),
        "sealed, but of another version": SEAL.put(f"{ANN} 1", b"\x93\x09\x01\x02"),
    }


@pytest.mark.parametrize("how", forge(bytes(64), b""))
@pytest.mark.parametrize("cached", [True, False])
def test_a_foreign_record_refuses_its_stream_and_nothing_else(art, how, cached, monkeypatch):
    fake = Server()
    g = session_on(art, FaultyLink(fake, random.Random(0), 0))
    asyncio.run(g.handle([message(s, {"t": 0, "value": 3}) for s in ("ann", "bob")]))
    own, other = (fake.history[VEIL.key(DEFAULT_SPACE, s)][-1][1] for s in ("ann", "bob"))
    sent = dict(fake.published)
    fake.last += 1
    fake.history[ANN].append((fake.last, forge(own, other)[how]))
    fake.headers[fake.last] = {FOLLOWS: "1"}  # as a worker would
    if not cached:
        g = session_on(art, FaultyLink(fake, random.Random(0), 0))
    both = [message(s, {"t": t, "value": 3}, f"{s}{t}") for t in (0, 1, 2) for s in ("ann", "bob")]
    assert asyncio.run(g.handle(both)) == both  # all may be acknowledged: the queue does not stop
    assert len(fake.history[ANN]) == 2  # and nothing was written over it
    assert {k for k in fake.published if k.startswith("default.ann")} == {"default.ann.0"}
    assert fake.published["default.ann.0"] == sent["default.ann.0"]
    assert g.stats.refused["memory"] == 3
    assert {"default.bob.1", "default.bob.2"} <= fake.published.keys()


ELSEWHERE = {FOLLOWS: "0", f"{FOLLOWS}-Subject": "$KV.nothing.there"}  # compared with a key that has no revision


@NEEDS_SERVER
@pytest.mark.parametrize("header", ["none", "latest", "another subject's"])
@pytest.mark.parametrize("which", ["stream", "policy"])
def test_an_old_record_put_back_is_noticed(art, server, header, which):
    """By somebody who may write there, as it was, with every header the server takes: nothing is drawn again."""
    names = Names(f"old-{header[0]}-{which}")

    async def put_back(old: bytes, key: str) -> None:
        link = await connected(server.urls)
        last = (await link.api(f"STREAM.MSG.GET.{names.memory}", last_by_subj=key))["message"]["seq"]
        headers = {"none": None, "latest": {FOLLOWS: str(last)}, "another subject's": ELSEWHERE}[header]
        assert (await link.request((key, old, headers)))["seq"] > last
        await link.close()

    async def old_and_new() -> tuple[bytes, list[bytes]]:
        link = await connected(server.urls)
        await send(link, names, "ann", [0])
        await until(link, names.readings, 0, PATIENCE_S)
        old = (await stored(link, names))[key]
        await send(link, names, "ann", [1, 2])
        await until(link, names.readings, 0, PATIENCE_S)
        found = await released(link, names, "ann")
        await link.close()
        return old, found

    async def again() -> list[bytes]:
        link = await connected(server.urls)
        await send(link, names, "ann", [1, 2, 3], 9.0)
        await until(link, names.readings, 0, PATIENCE_S)
        found = await released(link, names, "ann")
        await link.close()
        return found

    key = names.meta if which == "policy" else names.key(DEFAULT_SPACE, "ann")
    with Running(art, server.urls, names.prefix, partitions=1):
        old, before = asyncio.run(old_and_new())
    asyncio.run(put_back(old, key))
    if which == "policy":
        with pytest.raises(InputError, match="not sealed with this key"):
            Running(art, server.urls, names.prefix).gateway.probe()
        return
    with Running(art, server.urls, names.prefix, partitions=1) as g:
        assert asyncio.run(again()) == before
        assert g.stats.refused["memory"] == 3


def test_a_refused_stream_does_not_hold_up_the_tick_of_the_others(tmp_path):
    art, fake = artefact(tmp_path / "clock.veil", period_s=60.0), Server()
    g = session_on(art, FaultyLink(fake, random.Random(0), 0), clock=True, now=lambda: 30.0)
    fake.history[ANN] = [(7, b"")]
    asyncio.run(g.handle([message("bob", {"t": 12, "value": 3})]))
    keys = [(DEFAULT_SPACE, "ann"), (DEFAULT_SPACE, "bob")]
    assert asyncio.run(Clock(g, DEFAULT_SPACE)._tick(0, keys)) == ([], [])
    assert set(fake.published) == {"default.bob.0"}


@NEEDS_SERVER
def test_a_policy_record_written_over_ends_nobody_and_a_rebind_mends_it(art, server):
    names = Names("meta")

    async def junk(value: bytes):
        link = await connected(server.urls)
        await link.request((names.meta, value, None))
        await link.close()

    async def one(t):
        link = await connected(server.urls)
        await send(link, names, "ann", [t])
        await until(link, names.readings, 0, PATIENCE_S)
        found = await released(link, names, "ann")
        await link.close()
        return found

    for value in (b"", b'{"uptime_s":3.0}', Seal(bytes(32)).put(names.meta, b'{"schema":1,"spaces":{}}')):
        running = Running(art, server.urls, "meta", partitions=1, rebind=True)
        with running as g:
            first = asyncio.run(one(0))
            asyncio.run(junk(value))
            time.sleep(2.5)  # it has looked
            assert g.stats.connected and asyncio.run(one(0)) == first and not running.error
        with pytest.raises(InputError, match=r"`key_file=FILE`.*`rebind=True`"):
            Running(art, server.urls, "meta").gateway.probe()
    with Running(art, server.urls, "meta", rebind=True) as g:
        assert asyncio.run(one(0)) == first and g.stats.released == 0


# --- the key -----------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "key"
    made = []
    threads = [threading.Thread(target=lambda: made.append(Seal.of_file(str(path)).key)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(made)) == 1 and [p.name for p in tmp_path.iterdir()] == ["key"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and made[0].hex() not in repr(Seal(made[0]))
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Seal.of_file(str(path))
    path.chmod(0o600)
    path.write_text("secret")
    with pytest.raises(InputError, match="64 hexadecimal digits") as caught:
        Seal.of_file(str(path))
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read or made: No such file"):
        Seal.of_file(str(tmp_path / "no" / "key"))


@NEEDS_SERVER
def test_a_worker_without_the_key_is_refused_and_makes_none(art, server, tmp_path):
    with Running(art, server.urls, "keyed", partitions=1) as g:
        with pytest.raises(InputError, match="copy the key of another worker"):
            Running(art, server.urls, "keyed", key=str(tmp_path / "new")).gateway.probe()
        assert not (tmp_path / "new").exists()
        Seal.of_file(str(tmp_path / "other"))
        with pytest.raises(InputError, match="not sealed with this key"):
            Running(art, server.urls, "keyed", key=str(tmp_path / "other")).gateway.probe()
        assert g.stats.connected
    Running(art, server.urls, "keyed", key=key_file()).gateway.probe()


def test_a_missing_stream_is_not_taken_for_a_new_one(art):
    """The bucket is gone: its streams cannot be read, which is not the same as having none."""
    g = session_on(art, FaultyLink(Server(), random.Random(0), 0))

    async def no_bucket(requests, timeout_s=0):
        return [Rejected({"code": 404, "err_code": 10059, "description": "stream not found"}) for _ in requests]

    g.link.ask = no_bucket
    loan = asyncio.run(g.ledger.lend([(DEFAULT_SPACE, "ann")]))
    assert not loan.records and not loan.refused
