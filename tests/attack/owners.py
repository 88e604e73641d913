"""One store, many names and copies: two gateways by different names, and a file that is written over."""

import contextlib
import json
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path

from attack.drill import Trial
from attack.killable import toy
from attack.kills import Answers, audit, one_release_each
from forked import Gateways
from gatewaykit import artefact, core_of
from mosquitto import free_port
from mounts import bound, may_mount
from patience import wait_until
from veilstream.gateway.records import StoreError
from veilstream.gateway.wire import Reading

STREAMS = 5


# --- names -----------------------------------------------------------------------------------------------------


def names(folder: Path, ends: contextlib.ExitStack) -> dict[str, Path]:
    """The store, and what else it can be called."""
    (folder / "a").mkdir()
    real = folder / "a" / "s.db"
    (folder / "link.db").symlink_to("a/s.db")
    (folder / "b").symlink_to("a")
    found = {"itself": real, "link": folder / "link.db", "folder": folder / "b" / "s.db"}
    if may_mount():
        found["mounted folder"] = ends.enter_context(bound(folder / "a", folder / "c")) / "s.db"
    return found


def two(t: Trial) -> int:
    """Two gateways by two names, at once and in turn, killed or stopped: at most one answers, and always the same."""
    artefact(t.folder / "p.veil")
    ports, out, attacks = [free_port(), free_port()], {}, t.times(8)
    with contextlib.ExitStack() as ends:
        by = names(t.folder, ends)
        for k in range(attacks):
            first, second = t.rng.sample(sorted(by), 2)
            hard = t.folder / f"hard{k}.db"
            with contextlib.ExitStack() as both:
                one, other = (
                    both.enter_context(Gateways(t.folder / "p.veil", by[name], "http", port))
                    for name, port in zip((first, second), ports, strict=True)
                )
                one.start()
                wait_until(lambda k=k: answers(ports[0], k, out) > 0, what="the first one")
                if t.rng.random() < 0.3:  # a hard link, made while it runs
                    hard.hardlink_to(by["itself"])
                other.start()
                said = by[second].with_suffix(".log")
                wait_until(lambda said=said: any(w in said.read_text() for w in ("in use by", "hard links")))
                assert answers(ports[1], k, {}) == 0, f"both run: {first} and {second}"
                answers(ports[0], k, out)
                one.signal(t.rng.choice([signal.SIGKILL, signal.SIGTERM]))
            hard.unlink(missing_ok=True)
            for log in {path.with_suffix(".log") for path in by.values()}:
                log.unlink(missing_ok=True)
        assert audit(by["itself"], out) == len(out)
    return attacks


def answers(port: int, k: int, out: Answers) -> int:
    """Steps up to k said with other values; how many were answered, each as before."""
    rows = [{"stream": f"s{s}", "t": step, "value": (s + k) % 16} for step in range(k + 1) for s in range(STREAMS)]
    body, kind = json.dumps(rows).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/release", body, kind)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(request, timeout=5) as answer:
        found = json.load(answer)
        one_release_each(found, out)
        return len(found)
    return 0


# --- copies ----------------------------------------------------------------------------------------------------


def overwritten(t: Trial) -> int:
    """Copies of the file, made at any time, written over it at any other: noticed at once, or nothing was lost."""
    attacks = 0
    for k in range(t.times(40)):
        folder = t.folder / str(k)
        folder.mkdir()
        attacks += _overwritten(t, folder / "s.db")
    return attacks


def _overwritten(t: Trial, path: Path) -> int:
    art, out, copies = toy(None), {}, []
    steps = iter(range(10_000))

    def say(core, n: int) -> None:
        for _ in range(n):
            step = next(steps)
            readings = [Reading(f"s{s}", step, step, float(step % 6)) for s in range(STREAMS) if t.rng.random() < 0.5]
            for r, o in zip(readings, core.process(readings).outcomes, strict=True):
                out[r.stream, step] = o.release

    for _ in range(t.rng.randrange(1, 4)):  # runs, each with copies of the file as it is
        with core_of(art, path) as core:
            core.store.file.db.execute(f"PRAGMA wal_autocheckpoint = {t.rng.choice([1, 5, 1000])}")
            for _ in range(t.rng.randrange(1, 5)):
                say(core, t.rng.randrange(4))
                copies.append(path.read_bytes())
    killed = path.parent / "killed"
    killed.mkdir()
    with core_of(art, path) as core:
        core.store.file.db.execute(f"PRAGMA wal_autocheckpoint = {t.rng.choice([1, 5, 1000])}")
        say(core, t.rng.randrange(6))
        before, copy = path.read_bytes(), t.rng.choice([*copies, path.read_bytes()])
        path.write_bytes(copy)
        if t.rng.random() < 0.5:
            n = len(out)
            with contextlib.suppress(StoreError):
                say(core, 3)
            late = len(out) > n and copy[60:64] != before[60:64]
            assert not late, "it went on after an older copy"
        for file in ("s.db", "s.db-wal", "s.db-count"):  # what a kill would leave
            shutil.copy(path.with_name(file), killed / file)
        with contextlib.suppress(StoreError):
            core.close()
        core.close = lambda: None
    for at in (path, killed / "s.db"):
        with contextlib.suppress(StoreError), core_of(art, at) as core:
            again = core.process([Reading(s, step, step, 0.0) for s, step in out]).outcomes
            assert [o.release for o in again] == list(out.values()), "a step that was released has another release"
    return 1
