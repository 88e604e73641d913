"""Files from a stranger: `.veil` containers, every reader's sample, and a store in which bytes were flipped."""

import contextlib
import json
import random
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attack.drill import Trial
from gatewaykit import artefact, core_of, places, problem_of, window_policy
from oracles import some_memory
from samples import SAMPLES, packed_bytes
from veilstream import artefact as artefacts
from veilstream.artefact import load, save
from veilstream.container import pack, unpack
from veilstream.control.controller import schedule
from veilstream.errors import InputError
from veilstream.gateway.records import StoreError
from veilstream.gateway.wire import Reading, Refusal
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import hamming
from veilstream.model.problem import Average, Problem
from veilstream.solvers.start import start

LONGEST_LINE = 400
STRANGE = [None, -1, 0, 1, 2**70, 1e308, float("nan"), "x", "\x1b[2J", [], {}, [[]], True, [1, 2, 3], {"kind": "x"}]


@contextlib.contextmanager
def soon(seconds: float = 60) -> Iterator[None]:
    """What hangs is a failure."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- .veil -----------------------------------------------------------------------------------------------------


def originals(folder: Path) -> list[Path]:
    toy = problem_of("grid2x3-toy")
    lifted = Problem(MarkovChain.fit(toy.chain.sample(300, 2), order=2, smoothing=0.1), hamming(6), Average(weight=1.0))
    artefact(folder / "window.veil", states=places(), period_s=60.0)
    save(folder / "order2.veil", window_policy(lifted), problem=lifted)
    turns = schedule([window_policy(toy), some_memory(np.random.default_rng(0), Z=6, Y=6)], [2, 3])
    save(folder / "turns.veil", turns, problem=toy)
    save(folder / "memory.veil", some_memory(np.random.default_rng(1), Z=6, Y=6), problem=toy)
    start(max="2km", progress=False).save(folder / "anywhere.veil")
    return [folder / f"{name}.veil" for name in ("window", "order2", "turns", "memory", "anywhere")]


def mutated(rng: random.Random, meta: dict, arrays: dict) -> None:
    """One thing in a description or an array is another; the checksum will be right."""
    if rng.random() < 0.5:
        at, keys = meta, list(meta)
        while True:
            key = rng.choice(keys)
            if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
                at = at[key]
                keys = list(at) if isinstance(at, dict) else list(range(len(at)))
                continue
            if isinstance(at, dict) and rng.random() < 0.3:
                del at[key]
            else:
                at[key] = rng.choice(STRANGE)
            return
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy()
    if rng.random() < 0.3:
        shapes = [array[:0], array[..., :1], array.ravel(), array[None], array[:-1]]
        arrays[name] = np.ascontiguousarray(rng.choice(shapes))
    elif rng.random() < 0.1:
        del arrays[name]
    else:
        values = [-1, 0, 1, 2, 7, 10**6] if array.dtype.kind == "i" else [-1.0, 0.0, 1.0, 0.5, np.inf, 1e308, 1e-300]
        array.flat[rng.randrange(max(array.size, 1)) if array.size else 0] = rng.choice(values)
        arrays[name] = array


def resealed(rng: random.Random, meta: dict, arrays: dict) -> bytes | None:
    """One to three mutations, and a checksum that fits; None if it is not even JSON."""
    meta, arrays = json.loads(json.dumps(meta)), dict(arrays)
    try:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            mutated(rng, meta, arrays)
        meta.pop("sha256", None)
        meta["sha256"] = artefacts._digest(meta, arrays)
        return pack(meta, arrays)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError):
        return None


def bent(rng: random.Random, data: bytes) -> bytes:
    """Bytes flipped, cut out, doubled or written over."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(out) + 1)
        piece = rng.choice(
            [b"", bytes([rng.randrange(256)]), b"\xff" * 8, b"{", b'"', out[at : at + 8] * 2, b"\x00" * 9]
        )
        out[at : at + rng.choice([0, 1, 1, 8])] = piece
    return bytes(out)


def veil(t: Trial) -> int:
    """Loaded, served, and asked for releases: one line, or it works."""
    path = t.rng.choice(originals(t.folder))
    whole, raw = unpack(path, "x"), path.read_bytes()
    refused, tried, lines = 0, 0, []
    for _ in range(t.times(300)):
        data = bent(t.rng, raw) if t.rng.random() < 0.25 else resealed(t.rng, *whole)
        if data is None:
            continue
        tried += 1
        path.write_bytes(data)
        try:
            with soon(), core_of(load(path), now=lambda: 6000.0) as core:
                core.process([Reading("a", step, step, 1.0) for step in range(3)])
        except InputError as error:
            refused += 1
            lines.append(str(error))
    assert all(map(str.isprintable, lines)), "not one clean line"
    assert refused > tried // 4, f"{refused} of {tried} refused: are they mutants at all?"
    return tried


# --- readers ---------------------------------------------------------------------------------------------------


def values_in(reader) -> list[str]:
    """The digits after the point of every number of the example: nothing else in it has so many. (E7: of degrees.)"""
    return ["".join(found) for found in re.findall(r'\.(\d{6})\b|E7": -?\d+(\d{6})0\b', SAMPLES[reader.name])]


def packed(text: str, reader) -> bytes:
    """A file that says this: a text is itself, and where a binary file cannot say it, it is a text."""
    try:
        return packed_bytes(reader, text)
    except Exception:
        return text.encode()


def read_or_refused(path: Path, content: str | bytes, reader):
    """Readings, or None after one line that names the file and holds no value of it."""
    from veilstream.data.sources import read

    path.write_bytes(packed(content, reader) if isinstance(content, str) else content)
    try:
        return read([str(path)])
    except InputError as error:
        line = str(error)
        assert "\n" not in line
        assert path.name in line
        assert len(line) - len(str(path)) < LONGEST_LINE
        assert not [v for v in values_in(reader) if v in line], "a value of the file stands in the message"
        return None


PIECES = [
    b"",
    b"\n",
    b",",
    b'"',
    b"\xff",
    b"x",
    b"-",
    b"e9",
    b"{",
    b"<",
    b"NaN",
    b"1e400",
    b"\x00",
    b"9" * 40,
    b"]}",
    b";",
]


def readers(t: Trial) -> int:
    from veilstream.data.readers import READERS

    reader = t.rng.choice(READERS)
    path = t.folder / f"x{t.rng.choice([*reader.endings, '', '.txt'])}"
    n = t.times(60)
    for _ in range(n):
        text = bytearray(packed(SAMPLES[reader.name], reader))
        for _ in range(t.rng.randint(1, 6)):
            at = t.rng.randint(0, len(text))
            text[at : at + t.rng.randint(0, 12)] = t.rng.choice(PIECES)
        with soon():
            read_or_refused(path, bytes(text), reader)
    return n


# --- a store ---------------------------------------------------------------------------------------------------

STEPS = range(5)


def readings(value: float = 3.0) -> list[Reading]:
    return [Reading(s, t, t, value) for s in ("a", "b") for t in STEPS]


def after_damage(art, path: Path, first: list) -> str:
    """What a damaged store does: "line", "same" or a reason to fail."""
    try:
        with core_of(art, path) as core:
            core.probe()
            core.store.unsent()
            for r, before in zip(readings(9.0), first, strict=True):
                try:
                    o = core.process([r]).outcomes[0]
                except StoreError as error:
                    if "\n" in str(error):
                        return "several lines"
                    continue
                if o.status is not Refusal.late and o.release != before.release:
                    return f"a second draw of {r.stream} {r.step}"
    except InputError as error:
        return "several lines" if "\n" in str(error) else "line"
    return "same"


def flips(t: Trial) -> int:
    """One byte of the store changed, anywhere: it is refused with a line, or every step is as it was."""
    art, path = artefact(t.folder / "p.veil"), t.folder / "s.db"
    with core_of(art, path) as core:
        first = core.process(readings(), lambda outcomes: [("a", "out/a", b"{}")]).outcomes
    data, count = path.read_bytes(), (t.folder / "s.db-count").read_bytes()
    with contextlib.closing(sqlite3.connect(path)) as db:
        size = db.execute("PRAGMA page_size").fetchone()[0]
    used = [i for i in range(len(data)) if data[i] or i % size < 120]  # where something is written
    found = {"line": 0, "same": 0}
    n = t.times(60)
    for _ in range(n):
        at, by = t.rng.choice(used), 1 << t.rng.randrange(8)
        for name in ("s.db-wal", "s.db-shm", "s.db-journal"):
            (t.folder / name).unlink(missing_ok=True)
        path.write_bytes(data[:at] + bytes([data[at] ^ by]) + data[at + 1 :])
        (t.folder / "s.db-count").write_bytes(count)
        result = after_damage(art, path, first)
        assert result in found, f"{result}: byte {at} by {by}"
        found[result] += 1
    assert n < 30 or (found["line"] > 0 and found["same"] > 0), found
    return n
