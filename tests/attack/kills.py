"""Gateways killed and frozen at random moments, over every transport: nothing lost, no step drawn twice.

The account is made from what came out and from the store itself, not from what the gateway says.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attack.drill import Trial
from audiencekit import HIDDEN, behind
from forked import Gateways
from forker import OWNER, THEIRS
from gatewaykit import artefact
from mosquitto import Mosquitto, free_port
from mqttkit import Client
from patience import Patience, wait_until
from veilstream.data.states import StateSpace
from veilstream.gateway.records import StoreError
from veilstream.gateway.store import Store

STREAMS = 20
KILLED = "SIGKILLs"
CANARY = re.compile(rb"4[12]\d007\.5")
Answers = dict[tuple[str, int], dict]  # stream and step -> its release


def one_release_each(found: list[dict], into: Answers | None = None) -> Answers:
    out: Answers = {} if into is None else into
    for release in found:
        key = (release["stream"], release["t"])
        assert out.setdefault(key, release) == release, f"two different releases of {key}"
    return out


def alone(folder: Path) -> None:
    artefact(folder / "p.veil")


def with_public(folder: Path) -> None:
    """A policy whose every release is a canary, and one for the public behind it, which `forker.py` serves."""
    values, edges = 410_007.5 + 1000.0 * np.arange(16), np.arange(15) + 0.5
    states = StateSpace("bins", values[:, None], tuple(map(str, values)), "", edges)
    own = np.arange(float(HIDDEN))
    points = StateSpace("bins", own[:, None], tuple(map(str, own)), "", own[1:] - 0.5)
    behind(folder / "public.veil", artefact(folder / "p.veil", states=states), points=points)


def nothing_finer(seen: bytes) -> None:
    """Of all bytes that an outer audience got, none are of a canary."""
    assert seen, "nothing was seen of an outer audience"
    found = CANARY.search(seen)
    assert found is None, "a finer release reached an outer audience"


def audit(store: Path, out: Answers, space: str = "") -> int:
    """Every committed release of a space, and nothing else, is in `out`; totals agree with the log."""
    with contextlib.closing(sqlite3.connect(store)) as db:
        rows = db.execute(
            "SELECT s.name, r.step, r.message FROM releases r JOIN streams s ON s.id = r.stream "
            "WHERE s.space = ? ORDER BY 1, 2",
            (space,),
        ).fetchall()
        log = {(name, step): json.loads(message) for name, step, message in rows}
        assert len(log) == len(rows)
        assert out == log, (
            f"{len(out.keys() - log.keys())} not in the log, {len(log.keys() - out.keys())} never came out"
        )
        streams = db.execute("SELECT name, last_step, total FROM streams WHERE space = ?", (space,)).fetchall()
        for name, last, total in streams:
            assert abs(log[name, last]["leaked_bits"] - total) < 1e-6
            assert max(step for stream, step in log if stream == name) == last
            per_step = [log[name, step]["leaked_bits"] for stream, step in sorted(log) if stream == name]
            assert per_step == sorted(per_step)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return len(log)


def strike(gateways: Gateways, rng: random.Random, store: Path, word: str = "") -> bool:
    """Kill it and start another one, or freeze it for a while; nobody else may have its store meanwhile. Whether it was
    killed."""
    if rng.random() < 0.7:
        gateways.signal(signal.SIGKILL)
        gateways.start(word)
        return True
    gateways.signal(signal.SIGSTOP)
    time.sleep(rng.uniform(0.02, 0.4))
    with contextlib.suppress(StoreError):  # it may not have had the time to open it
        Store(store, {}).close()
    gateways.signal(signal.SIGCONT)
    return False


def struck(
    t: Trial, gateways: Gateways, store: Path, load: Callable[[], None], ended: threading.Event, strikes: int
) -> None:
    """So many strikes under a load, and until the load has ended."""
    loader = threading.Thread(target=load)
    loader.start()
    killed = 0
    for _ in range(strikes):
        time.sleep(t.rng.uniform(0.02, 0.4))
        killed += strike(gateways, t.rng, store)
    ended.set()
    t.figures[KILLED] = killed
    loader.join()


# --- pipe ------------------------------------------------------------------------------------------------------


def pipe(t: Trial, make: Callable[[Path], None] = alone) -> int:
    """The same input again after every kill, as a user would."""
    make(t.folder)
    steps, strikes = t.times(400), t.times(12)
    lines = [{"stream": f"s{s}", "t": k, "value": t.rng.randrange(16)} for k in range(steps) for s in range(STREAMS)]
    (t.folder / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outputs = [t.folder / f"out{i}" for i in range(strikes + 1)]
    with Gateways(t.folder / "p.veil", t.folder / "s.db", "pipe", t.folder / "in") as gateways:
        for output in outputs[:-1]:
            gateways.start(str(output))
            wait_until(lambda output=output: output.exists() or not _alive(gateways.pid), what="a start")
            time.sleep(t.rng.uniform(0, 0.15))
            gateways.signal(signal.SIGKILL)
        gateways.start(str(outputs[-1]))
        wait_until(lambda: not _alive(gateways.pid), 60, "the end of the input")
    out: Answers = {}
    for output in outputs:
        whole = output.read_bytes().rpartition(b"\n")[0] if output.exists() else b""
        one_release_each([json.loads(line) for line in whole.splitlines()], out)
    if make is with_public:
        nothing_finer(b"".join(output.read_bytes() for output in outputs if output.exists()))
    assert audit(t.folder / "s.db", out, "public" if make is with_public else "") == len(lines)
    t.figures[KILLED] = strikes
    return strikes


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- HTTP ------------------------------------------------------------------------------------------------------


def http(t: Trial, make: Callable[[Path], None] = alone) -> int:
    """Every reading is sent until it is answered, and once more in the end."""
    make(t.folder)
    port, store, strikes = free_port(), t.folder / "s.db", t.times(12)
    out: Answers = {}
    ended, wrong = threading.Event(), []
    bodies: list[bytes] = []
    head, seen = {"Content-Type": "application/json", "Authorization": f"Bearer {OWNER}"}, bytearray()

    def look() -> None:
        """As the public, with its own token."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/status", headers={"Authorization": f"Bearer {THEIRS}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), opener.open(request, timeout=3) as answer:
            seen.extend(answer.read())

    def watch() -> None:
        while not ended.wait(0.05):
            look()

    def post(body: bytes) -> None:
        patience = Patience()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/release", body, head)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not patience.over:
            with contextlib.suppress(OSError, ValueError), opener.open(request, timeout=3) as answer:
                one_release_each(json.load(answer), out)
                return
            time.sleep(0.01)
        raise AssertionError("no answer any more")

    def load() -> None:
        values = random.Random(t.rng.random())
        try:
            while not ended.is_set():
                k = len(bodies)
                batch = [{"stream": f"s{s}", "t": k, "value": values.randrange(16)} for s in range(STREAMS)]
                bodies.append(json.dumps(batch).encode())
                post(bodies[-1])
        except AssertionError as error:
            wrong.append(error)

    with Gateways(t.folder / "p.veil", store, "http", port) as gateways:
        gateways.start()
        if make is with_public:
            threading.Thread(target=watch).start()
        struck(t, gateways, store, load, ended, strikes)
        for body in bodies:
            post(body)
        look()
        gateways.stop()
    assert not wrong, wrong[0]
    if make is with_public:
        nothing_finer(bytes(seen))
    assert audit(store, out) == STREAMS * len(bodies)
    return strikes


# --- MQTT ------------------------------------------------------------------------------------------------------


def mqtt(t: Trial, make: Callable[[Path], None] = alone) -> int:
    """QoS 1 and a session that the broker keeps: every reading is accepted, and its release reaches the output."""
    (t.folder / "broker").mkdir()
    make(t.folder)
    broker, store = Mosquitto(t.folder / "broker"), t.folder / "s.db"
    client = Client(broker.port, "out/+", client_id="service")
    public = Client(broker.port, "public/+", client_id="public") if make is with_public else None
    steps, ended, strikes = [0], threading.Event(), t.times(12)

    def load() -> None:
        values = random.Random(t.rng.random())
        while not ended.is_set():
            if len(client.queue) - len(client.confirmed) < 300:
                for s in range(STREAMS):
                    client.say(f"in/s{s}", {"t": steps[0], "value": values.randrange(16)})
                steps[0] += 1
            ended.wait(0.04)

    try:
        with Gateways(t.folder / "p.veil", store, "mqtt", broker.port) as gateways:
            gateways.start()
            log = store.with_suffix(".log")
            wait_until(lambda: b"broker_connected" in log.read_bytes())  # its session exists from here on
            struck(t, gateways, store, load, ended, strikes)
            n = STREAMS * steps[0]
            wait_until(client.all_sent, what="publishing")
            wait_until(lambda: len({(r["stream"], r["t"]) for r in client.releases()}) == n, what="the last release")
            if public is not None:
                wait_until(lambda: len({(r["stream"], r["t"]) for r in public.releases()}) == n, what="the public's")
            gateways.stop()
    finally:
        ended.set()
        client.end()
        if public is not None:
            public.end()
        broker.stop()
    assert audit(store, one_release_each(client.releases())) == n
    if public is not None:
        assert audit(store, one_release_each(public.releases()), "public") == n
        nothing_finer(b"".join(payload for _, payload, _ in public.heard))
    assert "Traceback" not in log.read_text()
    t.figures["copies of a release at the output"] = len(client.releases()) / n
    return strikes


# --- several audiences -----------------------------------------------------------------------------------------


def audiences(t: Trial) -> int:
    """Over each transport: every step that the finer audience has the coarser one has too, once, and no other."""
    found = 0
    for over in (pipe, http, mqtt):
        folder = t.folder / over.__name__
        folder.mkdir()
        found += over(one := Trial(t.rng, folder, t.size), with_public)
        t.figures[f"{KILLED} over {over.__name__}"] = one.figures[KILLED]
        tuples(folder / "s.db")
    return found


def tuples(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as db:
        query = "SELECT s.name, r.step, r.message FROM releases r JOIN streams s ON s.id = r.stream WHERE s.space = ?"
        fine, coarse = ({(name, step): m for name, step, m in db.execute(query, (k,))} for k in ("", "public"))
    assert fine.keys() == coarse.keys() and fine, f"{len(fine.keys() ^ coarse.keys())} steps lack one of the two"
    assert {json.loads(m)["released"] for m in coarse.values()} <= set(range(HIDDEN))
    assert all(CANARY.search(m) for m in fine.values())  # or there was nothing finer to show


# --- NATS ------------------------------------------------------------------------------------------------------


def nats(t: Trial) -> int:
    """Three nodes: a worker and a node are killed, another worker is frozen for longer than its readings are held."""
    from benchmarks.nats import cluster_in, kill_drill

    art, streams, steps = artefact(t.folder / "policy.veil"), t.times(50), 40
    with cluster_in(t.folder, "cluster") as cluster:
        drill = kill_drill(
            t.folder, art, cluster, t.rng.randrange(2**32), streams, steps, workers=3, partitions=6, freeze=True
        )
        found = asyncio.run(drill)
    assert found["verdict"] == "ok", found
    return 3
