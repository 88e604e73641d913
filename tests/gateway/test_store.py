"""The store: all or nothing, one release per step, bound to its policy, closed to others, clear when it cannot work."""

import os
import sqlite3
import stat
import subprocess
import sys
import zlib

import msgspec
import pytest

from gatewaykit import artefact, core_of
from veilstream.gateway.place import Count
from veilstream.gateway.records import Batch, Binding, Private, StoreError, Stream, checksum
from veilstream.gateway.store import MEMORY, Store
from veilstream.gateway.wire import Reading, Refusal

ONE = {"": Binding("policy 1", "chain 1")}


def stream(name="a", **more) -> Stream:
    return Stream("", name, None, 3, 1.5, b"m", b"b", Private(**{"state": 7, **more}))


@pytest.fixture(params=["file", "memory"])
def path(request, tmp_path):
    return tmp_path / "store.db" if request.param == "file" else MEMORY


def test_what_is_committed_is_found_again(path):
    store, s = Store(path, ONE), stream(pending_step=4, pending_symbol=2, faults=1)
    ids = store.commit(Batch([s], [(s, 3, 1.5, b"message")], [("a", "out/a", b"message")]))
    assert store.load("", "a") == s
    assert store.find(s, 3) == (b"message",)
    assert store.find(s, 2) is None
    assert store.unsent() == [(ids[0], "out/a", b"message")]
    store.confirm(ids)
    assert store.unsent() == []
    store.close()


def test_a_second_release_of_a_step_is_impossible(path):
    store, s = Store(path, ONE), stream()
    store.commit(Batch([s], [(s, 3, 1.5, b"first")]))
    other = stream("other")
    with pytest.raises(StoreError):
        store.commit(Batch([other, s], [(other, 3, 1.0, b"x"), (s, 3, 2.5, b"second")], [("a", "t", b"x")]))
    assert store.find(s, 3) == (b"first",)
    assert store.load("", "other") is None  # all of the transaction fell
    assert store.unsent() == []
    assert store.load("", "a").total == 1.5
    store.close()


def test_it_survives_closing_and_keeps_others_out(tmp_path):
    path = tmp_path / "store.db"
    store, s = Store(path, ONE), stream()
    store.commit(Batch([s], [(s, 3, 1.5, None)]))
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    code = f"from veilstream.gateway.store import *\nStore({str(path)!r}, {{}})"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "in use by another process" in second.stderr
    store.close()
    again = Store(path, ONE)
    assert again.load("", "a") == s
    assert again.find(s, 3) == (None,)  # silent, and that is remembered too
    assert again.changed == set()
    again.close()


@pytest.mark.parametrize(
    ("new", "belief", "state"), [(Binding("policy 2", "chain 1"), b"b", 7), (Binding("policy 2", "chain 2"), None, -1)]
)
def test_a_changed_policy_keeps_steps_and_meter(tmp_path, new, belief, state):
    path = tmp_path / "store.db"
    store, s = Store(path, ONE), stream(pending_step=4, pending_symbol=2)
    store.commit(Batch([s], [(s, 3, 1.5, b"old")]))
    store.close()
    store = Store(path, {"": new})
    found = store.load("", "a")
    assert store.changed == {""}
    assert (found.last_step, found.total, found.memory, found.belief, found.private.state) == (
        3,
        1.5,
        None,
        belief,
        state,
    )
    assert store.find(found, 3) == (b"old",)
    store.close()


def test_pruned_steps_stay_closed(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db", keep=5) as core:
        first = core.process([Reading("a", step, step, 1.0) for step in range(20)]).outcomes
        core.prune()
        again = core.process([Reading("a", step, step, 9.0) for step in range(20)]).outcomes
    assert [o.status for o in again[:15]] == [Refusal.late] * 15
    assert [o.release for o in again[15:]] == [o.release for o in first[15:]]


def corrupt(path):
    Store(path, ONE).close()
    data = bytearray(path.read_bytes())
    data[100:4000] = os.urandom(3900)
    path.write_bytes(data)


def foreign(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE holidays (day TEXT)")
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: (p.write_bytes(b"not a database" * 100), p.chmod(0o600)), "not a database"),
        (corrupt, "cannot be used"),
        (foreign, "not a veilstream store"),
        (lambda p: (Store(p, ONE).close(), p.chmod(0o644)), "chmod 600"),
        (lambda p: p.mkdir(), "cannot open"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_clear_line(tmp_path, spoil, says):
    path = tmp_path / "s.db"
    spoil(path)
    with pytest.raises(StoreError, match=says) as error:
        Store(path, ONE)
    assert "\n" not in str(error.value)


def test_a_read_only_store_releases_nothing(tmp_path):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        first = core.process([Reading("a", 0, 0, 3.0)]).outcomes[0]
        core.store.file.db.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match="readonly"):
            core.process([Reading("a", 1, 1, 3.0)])
        with pytest.raises(StoreError):
            core.probe()
        core.store.file.db.execute("PRAGMA query_only = OFF")
        again = core.process([Reading("a", 0, 0, 9.0), Reading("a", 1, 1, 9.0)]).outcomes
    assert again[0].release == first.release
    assert again[1].release is not None


@pytest.fixture
def tiny_disk(tmp_path):
    """A tmpfs of 600 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_releases_nothing_and_recovers(tmp_path, tiny_disk):
    """What could not be committed was seen by nobody; when there is room again every step has one release."""
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    with core_of(artefact(tmp_path / "p.veil"), tiny_disk / "s.db") as core:
        seen, failed, t = {}, 0, 0
        while failed < 3:
            try:
                for o in core.process([Reading(f"s{i}", t, t, 3.0) for i in range(50)]).outcomes:
                    seen[o.release.stream, t] = o.release
                t += 1
            except StoreError as error:
                failed += "full" in str(error)
            assert t < 1000
        ballast.unlink()
        again = core.process([Reading(s, step, step, 9.0) for s, step in seen]).outcomes
        assert [o.release for o in again] == list(seen.values())
        assert all(o.release for o in core.process([Reading(f"s{i}", t, t, 3.0) for i in range(50)]).outcomes)
        (rows,) = core.store.file.read("SELECT count(*), count(DISTINCT stream || '/' || step) FROM releases")
    assert rows == (50 * (t + 1), 50 * (t + 1))


def pragmas(store: Store) -> tuple:
    return tuple(
        store.file.db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("synchronous", "secure_delete", "journal_mode")
    )


def test_commits_wait_for_the_disk_whatever_was_written_before(tmp_path):
    """synchronous FULL is 2; what need not wait (a confirmation, a probe) must leave it so."""
    store = Store(tmp_path / "s.db", ONE)
    assert pragmas(store) == (2, 1, "wal")
    seen = []
    real, store.file.db = store.file.db, Watched(store.file.db, seen)
    s = stream()
    ids = store.commit(Batch([s], [(s, 3, 1.5, b"m")], [("a", "t", b"x")]))
    for work in (lambda: store.confirm(ids), store.probe, lambda: store.set_aside("x", b""), lambda: store.prune(1)):
        work()
    store.file.db = real
    assert pragmas(store) == (2, 1, "wal")
    assert seen[0] == 2 and set(seen[1:]) == {1}  # as every COMMIT found it
    store.close()


class Watched:
    def __init__(self, db, seen: list) -> None:
        self._db, self._seen = db, seen

    def execute(self, sql: str, *values):
        if sql == "COMMIT":
            self._seen.append(self._db.execute("PRAGMA synchronous").fetchone()[0])
        return self._db.execute(sql, *values)

    def __getattr__(self, name: str):
        return getattr(self._db, name)


def test_the_count_beside_the_store_goes_with_every_commit(tmp_path):
    def count() -> tuple[str, int]:
        found = Count(str(tmp_path / "s.db-count"))
        try:
            return found.read()
        finally:
            found.close()

    store = Store(tmp_path / "s.db", ONE)
    assert count() == (store.id, 1)  # a start is one too
    for n, name in enumerate("abc", 2):
        store.commit(Batch([stream(name)]))
        assert count() == (store.id, n)
    store.close()
    (tmp_path / "s.db-count").unlink()
    again = Store(tmp_path / "s.db", ONE)
    assert count() == (again.id, 5)
    again.close()


@pytest.mark.parametrize("ids", [[], [4], [1, 2, 3], [5, 1, 2, 9, 8], [1, 3, 5], [7, 7]])
def test_confirmed_mail_is_gone_and_no_other(tmp_path, ids):
    store = Store(tmp_path / "s.db", ONE)
    store.commit(Batch(outbox=[("a", f"t{i}", b"x") for i in range(10)]))
    store.confirm(ids)
    assert [i for i, _, _ in store.unsent()] == [i for i in range(1, 11) if i not in ids]
    assert [i for i, _, _ in store.unsent(after=4, limit=2)] == [i for i in range(5, 11) if i not in ids][:2]
    store.close()
    again = Store(tmp_path / "s.db", ONE)
    assert again.commit(Batch(outbox=[("a", "t", b"y")]))[0] not in [i for i, _, _ in again.unsent()][:-1]
    again.close()


def test_every_stream_of_a_changed_policy_is_bound_anew_also_beyond_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr("veilstream.gateway.store.PAGE", 2)
    monkeypatch.setattr(Store.streams, "__defaults__", (0, 2))
    both = {**ONE, "other": Binding("policy 9", "chain 9")}
    store = Store(tmp_path / "s.db", both)
    store.commit(Batch([stream(name) for name in "abcde"]))
    store.commit(Batch([Stream("other", "x", last_step=1, total=0.5, memory=b"m", belief=b"b", private=Private(2))]))
    store.close()
    store = Store(tmp_path / "s.db", {**both, "": Binding("policy 2", "chain 2")})
    assert store.changed == {""}
    for name in "abcde":
        found = store.load("", name)
        assert (found.memory, found.belief, found.private.state, found.total, found.last_step) == (
            None,
            None,
            -1,
            1.5,
            3,
        )
    assert store.load("other", "x").memory == b"m" and store.count_streams() == 6
    assert store.total_bits() == pytest.approx(8.0)
    assert store.latest(3) == []
    store.close()


def test_every_stream_is_listed_and_private_counts_add_up(tmp_path):
    store = Store(tmp_path / "s.db", ONE)
    store.commit(Batch([stream(name) for name in "ab"], counts={"late": 2, "waiting": 1}))
    store.commit(Batch([stream("c")], counts={"late": 3, "ahead": 0}))
    assert [s.name for s in store.streams()] == ["a", "b", "c"]
    assert [s.name for s in store.streams(1, 1)] == ["b"]
    counts = dict(store.file.db.execute("SELECT reason, n FROM private_counts"))
    assert counts == {"late": 5, "waiting": 1, "ahead": 0}
    store.close()


def test_a_log_that_goes_before_the_first_commit_is_noticed(tmp_path):
    Store(tmp_path / "s.db", ONE).close()
    store = Store(tmp_path / "s.db", ONE)
    (tmp_path / "s.db-wal").unlink()
    with pytest.raises(StoreError, match="deleted or replaced"):
        store.commit(Batch([stream()]))
    with pytest.raises(StoreError):
        store.probe()
    store.close()


def test_a_checksum_is_the_crc_of_the_row_as_a_message():
    private = Private(3, 8, 4, 5, 0.25, -1.0, b"point", b"drift")
    for s in (Stream("", "a", 1), Stream("x", "é", 2, 7, 1.5, b"m", b"belief", private)):
        row = s.row(77)
        assert checksum(*row) == zlib.crc32(msgspec.msgpack.encode(row)) and row[-1] == 77
        assert Stream.of(row) == s
    assert checksum(3, 1, 0.5, None) != checksum(3, 1, 0.5, b"") != checksum(1, 3, 0.5, b"")
