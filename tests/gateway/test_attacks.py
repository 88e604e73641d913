"""Attacks on memory and silence: large and ragged requests, a part that dies, a full disk, half-open connections."""

import contextlib
import gc
import json
import re
import socket
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from gatewaykit import NEEDS_MOSQUITTO, artefact, core_of
from httpkit import Server
from mosquitto import Mosquitto
from mounts import mounted
from mqttkit import Client, serving
from patience import PATIENCE_S, wait_until
from veilstream.control.mechanism import MOST_CELLS
from veilstream.gateway import service
from veilstream.gateway.core import AT_ONCE, Message, handle, transactions
from veilstream.gateway.records import Status, StoreError
from veilstream.gateway.stats import Stats
from veilstream.gateway.wire import MAX_READINGS, Grid, Reading, Refusal, parse

MB = 1 << 20
TOKEN = "a token of decent length"


# --- memory ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_long_stream_among_many_takes_memory_as_its_readings_do(tmp_path):
    """Streams x longest was 5,000 x 5,000 numbers, several times over: more than 600 MB."""
    readings = [Reading(f"s{i}", 0, 0, 1.0) for i in range(5000)] + [Reading("long", t, t, 1.0) for t in range(5000)]
    with core_of(artefact(tmp_path / "p.veil")) as core:
        tracemalloc.start()
        outcomes = core.process(readings).outcomes
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert all(o.status is Status.released for o in outcomes)
    assert peak < 150 * MB, peak / MB


def test_ragged_rounds_release_what_rounds_of_one_stream_at_a_time_do(tmp_path):
    """Streams of 1, 7, 3, ... steps with gaps, in one batch: each as if it were alone."""
    rng = np.random.default_rng(1)
    steps = {f"s{i}": np.cumsum(rng.integers(1, 4, n)).tolist() for i, n in enumerate((1, 7, 3, 7, 2, 12))}
    readings = [Reading(s, t, t, float(t % 16)) for s, at in steps.items() for t in at]
    rng.shuffle(readings)
    readings.sort(key=lambda r: r.step)
    with core_of(artefact(tmp_path / "p.veil"), uniforms=lambda n: np.full(n, 0.37)) as core:
        together = {
            (r.stream, r.step): o.release for r, o in zip(readings, core.process(readings).outcomes, strict=True)
        }
    for stream in steps:
        with core_of(artefact(tmp_path / "p.veil"), uniforms=lambda n: np.full(n, 0.37)) as core:
            for r in readings:
                if r.stream == stream:
                    assert core.process([r]).outcomes[0].release == together[stream, r.step]


def test_many_streams_of_a_table_go_in_turn(tmp_path, monkeypatch):
    """The channels of a step, one per stream, are never more than MOST_CELLS numbers."""
    monkeypatch.setattr("veilstream.control.mechanism.MOST_CELLS", 16 * 16 * 100)
    assert MOST_CELLS > 16 * 16 * 100
    with core_of(artefact(tmp_path / "p.veil")) as core:
        sizes, look = [], core.spaces[""].mechanism.look
        monkeypatch.setattr(core.spaces[""].mechanism, "look", lambda s: sizes.append(len(s.total)) or look(s))
        core.process([Reading(f"s{i}", 0, 0, 1.0) for i in range(1000)])
    assert max(sizes) <= 100 and sum(sizes) == 1000


def test_a_message_may_hold_so_many_readings_and_a_transaction_so_many_messages(tmp_path):
    body = b"[" + b",".join([b'{"t":1}'] * (MAX_READINGS + 1)) + b"]"
    assert parse(body, Grid(), "a") is Refusal.too_many_readings
    assert len(parse(body.replace(b',{"t":1}]', b"]"), Grid(), "a")) == MAX_READINGS
    with core_of(artefact(tmp_path / "p.veil")) as core:
        server = Server(core)
        try:
            assert server.ask("/v1/release", body)[0] == 413
        finally:
            server.end()
        messages = [Message(b"", [Reading(f"s{i}", t, t, 1.0) for t in range(600)]) for i in range(10)]
        sizes = []
        handle(core, messages, lambda part: sizes.append(sum(len(p.found) for p in part)))
        assert AT_ONCE == 2000 and sizes == [2400, 2400, 1200]


def test_messages_that_one_transaction_does_not_take_are_not_read_yet():
    looked = []

    def messages(sizes):
        for n in sizes:
            looked.append(n)
            yield Message(b"", Refusal.time if n == 0 else [Reading("a", t, t, 1.0) for t in range(n)])

    assert [len(p.readings) for p in next(transactions(messages([600, 0, 600, 900, 600, 600])))] == [600, 1, 600, 900]
    assert looked == [600, 0, 600, 900]  # a refusal counts as one
    assert [len(p.readings) for p in next(transactions(messages([9000, 1])))] == [9000]
    assert list(transactions([])) == []


# --- silence -----------------------------------------------------------------------------------------------


def test_a_committer_that_dies_ends_the_gateway_and_nobody_waits(tmp_path, monkeypatch, caplog):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        server = Server(core)
        wrong = []
        server.thread.join(0)
        monkeypatch.setattr(server.gateway, "_commit", dies)
        monkeypatch.setattr(threading, "excepthook", lambda args: wrong.append(args.exc_type))
        code, _, _ = server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})
        assert code == 503
        server.thread.join(PATIENCE_S)
        assert not server.thread.is_alive() and wrong == [RuntimeError]
        monkeypatch.setattr(service.signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            service.run({"http": lambda stop: raise_(RuntimeError("at 39.9123"))}, core.stats)
    assert ended.value.code == 1
    assert "39.9123" not in caplog.text and "failed" in caplog.text


def test_what_is_there_at_the_start_is_no_longer_searched_for_garbage(monkeypatch):
    """Searching through all of numpy took a worker a tenth of its time."""
    monkeypatch.setattr(service.signal, "signal", lambda *_: None)
    seen: list[int] = []
    service.run({"part": lambda stop: seen.append(gc.get_freeze_count())}, Stats(0, []))
    assert seen[0] > 10_000 and gc.get_freeze_count() == 0


async def dies(waiting) -> None:
    raise RuntimeError("no memory")


def raise_(error):
    raise error


def test_a_request_that_takes_all_memory_costs_itself_alone(tmp_path, monkeypatch):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        process = core.process

        def limited(readings, *more):
            if len(readings) > 10:
                raise MemoryError
            return process(readings, *more)

        monkeypatch.setattr(core, "process", limited)
        server = Server(core)
        try:
            assert server.ask("/v1/release", [{"stream": "a", "t": t, "value": 3} for t in range(20)])[0] == 500
            assert server.ask("/v1/release", {"stream": "a", "t": 1, "value": 3})[0] == 200
            assert server.ask("/healthz")[0] == 200
        finally:
            server.end()


# --- health ------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path):
    """A tmpfs of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=2m", "tmpfs"):
        yield folder


def fill(folder) -> None:
    with open(folder / "ballast", "wb", 0) as file:
        try:
            while file.write(bytes(512)) == 512:
                pass
        except OSError:
            pass


def test_a_full_disk_is_unhealthy_until_there_is_room(tmp_path, tiny_disk):
    with core_of(artefact(tmp_path / "p.veil"), tiny_disk / "s.db") as core:
        server = Server(core)
        try:
            assert server.ask("/healthz")[0] == 200
            fill(tiny_disk)
            many = [{"stream": f"s{i}", "t": 1, "value": 3} for i in range(2000)]
            assert server.ask("/v1/release", many)[0] == 503
            assert server.ask("/healthz")[0] == 503
            with pytest.raises(StoreError):
                core.probe()  # a probe writes as much as a commit would
            (tiny_disk / "ballast").unlink()
            wait_until(lambda: server.ask("/healthz")[0] == 200)
            assert server.ask("/v1/release", many)[0] == 200
        finally:
            server.end()


def test_only_who_has_the_token_makes_health_write(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        writes = []
        core.store.probe = lambda: writes.append(1)
        for settings, headers, expected in (
            ({}, {}, 0),
            ({"token": TOKEN}, {}, 0),
            ({"token": TOKEN}, {"Authorization": "Bearer wrong token, long"}, 0),
            ({"token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}, 1),
        ):
            server = Server(core, **settings)
            try:
                assert server.ask("/healthz", **headers)[0] == 200
            finally:
                server.end()
            assert len(writes) == expected
            writes.clear()


@NEEDS_MOSQUITTO
def test_mqtt_does_not_flap_on_a_full_disk(tmp_path, tiny_disk):
    """It came back and went 86 times in 10 s."""
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(tmp_path / "broker")
    client = Client(broker.port, "out/#", "veil/status")
    try:
        with core_of(artefact(tmp_path / "p.veil"), tiny_disk / "s.db") as core, serving(core, broker.port):
            fill(tiny_disk)
            many = [{"t": t, "value": 3} for t in range(3000)]
            client.say("in/a", many)
            wait_until(lambda: core.stats.connected is False)
            time.sleep(3)
            said = [p for t, p, _ in client.heard if t == "veil/status"]
            assert said.count(b"online") <= 2
            (tiny_disk / "ballast").unlink()
            wait_until(lambda: {r["t"] for r in releases(client)} == set(range(3000)))
    finally:
        client.end()
        broker.stop()


def releases(client) -> list[dict]:
    found = [json.loads(p) for t, p, _ in client.heard if t != "veil/status"]
    return [r for body in found for r in (body if isinstance(body, list) else [body])]


# --- connections -------------------------------------------------------------------------------------------


def connected(server, data=b"", source="127.0.0.1") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.gateway.port), PATIENCE_S, (source, 0))
    made.sendall(data)
    return made


def get(path: str, token: str | None = TOKEN) -> bytes:
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n".encode()


def ended(made: socket.socket) -> bytes:
    """All that it says until it is closed."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := made.recv(65536):
            said += more
    return said


@pytest.fixture
def slots(monkeypatch):
    """Few of them, short times, and one address of this machine counts as one of elsewhere."""
    for name, value in {"MOST_FAR": 20, "MOST_NEAR": 3, "MOST_KNOWN": 4, "UNKNOWN_S": 0.5}.items():
        monkeypatch.setattr(f"veilstream.gateway.guard.{name}", value)
    monkeypatch.setattr("veilstream.gateway.http.KEEP_ALIVE_S", 1)
    monkeypatch.setattr("veilstream.gateway.guard.Guard.is_near", lambda self, address: address != "127.0.0.9")


@contextlib.contextmanager
def gateway(tmp_path, **settings):
    with core_of(artefact(tmp_path / "p.veil")) as core, contextlib.ExitStack() as ends:
        server = Server(core, **settings)
        ends.callback(server.end)
        yield server


@pytest.mark.parametrize("token", [None, TOKEN])
def test_half_open_connections_are_few_and_end(tmp_path, slots, token):
    with gateway(tmp_path, token=token) as server, contextlib.ExitStack() as held:
        asked = [b"", b"POST /v1/release HTTP/1.1\r\nHost: loc", get("/icon.svg", None) + b"GET"]
        made = [held.enter_context(connected(server, asked[i % 3], "127.0.0.9")) for i in range(60)]
        assert server.ask("/icon.svg")[0] == 200  # from here there are slots of its own
        for one in made:
            assert ended(one).count(b"HTTP/1.1") <= 1
        assert server.ask("/healthz")[0] == 200


def test_who_has_shown_no_token_gets_one_answer_and_who_has_stays(tmp_path, slots):
    """Asking for a public page every five seconds held a slot for ever; so did a second request, byte by byte."""
    with gateway(tmp_path, token=TOKEN) as server:
        for first in (get("/icon.svg", None), get("/v1/status", None), get("/v1/status", "another token, long")):
            with connected(server, first * 2) as made:
                assert ended(made).count(b"HTTP/1.1 ") == 1
        with connected(server) as made:
            for path in ("/v1/status", "/healthz", "/icon.svg"):
                time.sleep(0.4)  # longer, together, than others may stay
                made.sendall(get(path, TOKEN if path == "/v1/status" else None))
                assert b"200 OK" in made.recv(65536)
            start = time.monotonic()
            with contextlib.suppress(OSError):
                for byte in get("/icon.svg") * 9:  # it has a deadline as well
                    made.sendall(bytes([byte]))
                    time.sleep(0.05)
            assert time.monotonic() - start < 4


def test_the_oldest_unknown_one_makes_room_and_known_ones_do_not(tmp_path, slots, monkeypatch):
    monkeypatch.setattr("veilstream.gateway.guard.UNKNOWN_S", PATIENCE_S)
    monkeypatch.setattr("veilstream.gateway.http.KEEP_ALIVE_S", PATIENCE_S)
    with gateway(tmp_path, token=TOKEN) as server, contextlib.ExitStack() as held:
        known = []
        for _ in range(4):  # one after the other: three may be unknown at once
            known.append(held.enter_context(connected(server, get("/v1/status"))))
            assert b"200 OK" in known[-1].recv(65536)
        crowd = [held.enter_context(connected(server, source="127.0.0.9")) for _ in range(21)]
        assert ended(crowd[0]) == b""  # there are twenty
        with connected(server, get("/v1/status"), "127.0.0.9") as fifth:
            said = ended(fifth)  # answered, and let go
            assert b"200 OK" in said and b"Connection: close" in said
        assert ended(crowd[1]) == b""
        for one in known:
            one.sendall(get("/v1/status"))
            assert b"200 OK" in one.recv(65536)
        known[0].close()
        wait_until(lambda: len(server.gateway._slots._known) == 3)
        for _ in range(2):
            crowd[20].sendall(get("/v1/status"))  # of those that wait the youngest is still there, and may stay
            assert b"200 OK" in crowd[20].recv(65536)


def test_a_watcher_that_does_not_read_makes_room_for_others(tmp_path, monkeypatch):
    monkeypatch.setattr("veilstream.gateway.http.BODY_TIMEOUT_S", 0.3)
    monkeypatch.setattr("veilstream.gateway.http.EVENT_EVERY_S", 0)
    with gateway(tmp_path) as server, connected(server, get("/v1/events", None)):
        wait_until(lambda: server.gateway._watchers == 1)
        wait_until(lambda: server.gateway._watchers == 0)


def test_headers_that_never_end_are_few_and_short(tmp_path):
    """300 connections without a token took 560 MB by a megabyte of headers each."""
    with gateway(tmp_path) as server:
        for many, long, code in ((50, 4000, b"200"), (70, 10, b"400"), (1, 5000, b"400")):
            lines = b"".join(b"X-%d: %s\r\n" % (i, b"y" * long) for i in range(many))
            with connected(server, get("/icon.svg", None)[:-2] + lines + b"\r\n") as made:
                assert ended(made).split()[1] == code, (many, long)


def test_what_is_no_http_is_not_quoted(tmp_path):
    """aiohttp says which bytes it did not understand."""
    head = b"POST /v1/release HTTP/1.1\r\nHost: localhost\r\n"
    with gateway(tmp_path) as server:
        for asked in (
            b"GET /?lat=39.9123 HTTQ/1.1\r\n\r\n",
            head + b"lat 39.9123\r\n\r\n",
            head + b'Transfer-Encoding: chunked\r\n\r\n{"lat":39.9123}\r\n',
        ):
            with connected(server, asked) as made:
                said = ended(made)
            assert b" 400 " in said and b"39.9123" not in said and b"no-store" in said


def test_a_token_that_is_no_text_is_a_wrong_one(tmp_path):
    with core_of(artefact(tmp_path / "p.veil")) as core:
        server = Server(core, token=TOKEN)
        try:
            with socket.create_connection(("127.0.0.1", server.gateway.port), PATIENCE_S) as s:
                s.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
                assert re.match(rb"HTTP/1.1 401", s.recv(100))
        finally:
            server.end()


def test_a_gateway_that_fails_says_so_and_ends_with_code_1(tmp_path):
    """As people run it: one line of log, no traceback, nothing quoted."""
    code = (
        "from veilstream.gateway import service\nfrom veilstream.gateway.stats import Stats\nservice.configure()\n"
        "def part(stop): raise ValueError('39.9123')\nservice.run({'part': part}, Stats(0, []))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "39.9123" not in done.stderr and "Traceback" not in done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["reason"] == "ValueError"
