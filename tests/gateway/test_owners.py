"""One file, one owner, whatever the file is called; and a file that somebody writes over is not written on."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys

import pytest

from attack import owners
from attack.drill import Drill
from gatewaykit import artefact, core_of
from mounts import bound
from veilcli import refused
from veilstream.gateway.owner import look
from veilstream.gateway.place import Place
from veilstream.gateway.records import Batch, Binding, StoreError, Stream
from veilstream.gateway.store import Store
from veilstream.gateway.wire import Reading

ONE = {"": Binding("policy 1", "chain 1")}


def stream(name="a", step=3) -> Stream:
    return Stream("", name, None, step, 1.5)


@contextlib.contextmanager
def named(folder, kind):
    """The store a/veil.db, and another name of it."""
    (folder / "a").mkdir()
    real, other = folder / "a" / "veil.db", folder / "other.db"
    Store(real, ONE).close()
    with contextlib.ExitStack() as ends:
        if kind == "link":
            other.symlink_to(real)
        elif kind == "folder":
            (folder / "b").symlink_to("a")
            other = folder / "b" / "veil.db"
        elif kind == "hard link":
            other.hardlink_to(real)
        elif kind == "mounted folder":
            other = ends.enter_context(bound(folder / "a", folder / "b")) / "veil.db"
        else:
            other = ends.enter_context(bound(real, other))
        yield real, other


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kind", ["link", "folder", "mounted folder", "mounted file"])
def test_a_second_name_is_no_second_owner(tmp_path, kind, swapped):
    """Lock and count were beside the name: both ran, and drew steps twice."""
    with named(tmp_path, kind) as names:
        first, second = names[::-1] if swapped else names
        store = Store(first, ONE)
        store.commit(Batch([stream()]))
        for by in (second, first):  # also in this process
            with pytest.raises(StoreError, match="in use by another process") as error:
                Store(by, ONE)
            assert "\n" not in str(error.value)
        code = f"from veilstream.gateway.store import *\nStore({str(second)!r}, {{}})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "in use by another process" in done.stderr
        refused("forget", "a", "--store", second, says="in use: stop the gateway")
        if kind != "mounted file":
            assert [o.stream.name for o in look(second)] == ["a"]  # the log is found
        else:
            with pytest.raises(StoreError, match="under another name"):
                list(look(second))
        store.commit(Batch([stream("b")]))  # nothing of this did it harm
        store.close()
        again = Store(second, ONE)
        assert [s.name for s in again.streams()] == ["a", "b"]
        again.close()


def test_a_store_with_two_names_is_refused(tmp_path):
    """SQLite has a log beside each of them, so that also one after the other would lose commits."""
    with named(tmp_path, "hard link") as names:
        for name in names:
            with pytest.raises(StoreError, match=r"2 names \(hard links\).*remove the others") as error:
                Store(name, ONE)
            assert "\n" not in str(error.value)
        names[1].unlink()
        Store(names[0], ONE).close()


def test_a_link_made_while_it_runs_is_no_second_owner_either(tmp_path):
    store = Store(tmp_path / "s.db", ONE)
    (tmp_path / "t.db").hardlink_to(tmp_path / "s.db")
    with pytest.raises(StoreError, match="2 names"):
        Store(tmp_path / "t.db", ONE)
    store.commit(Batch([stream()]))
    store.close()


def test_a_store_that_is_replaced_while_it_is_opened_is_not_opened(tmp_path, monkeypatch):
    """Locked is one file, opened by its name another, which may be somebody's own."""
    Store(tmp_path / "s.db", ONE).close()
    shutil.copy(tmp_path / "s.db", tmp_path / "new")
    (tmp_path / "new").chmod(0o600)
    before = (tmp_path / "new").read_bytes()
    init = Place.__init__

    def replaced(self, name):
        init(self, name)
        os.replace(tmp_path / "new", tmp_path / "s.db")

    with monkeypatch.context() as patch:
        patch.setattr(Place, "__init__", replaced)
        with pytest.raises(StoreError, match="deleted or replaced"):
            Store(tmp_path / "s.db", ONE)
    assert (tmp_path / "s.db").read_bytes() == before


def crashed(path) -> None:
    """A gateway that is killed after a commit."""
    code = (
        "import os, signal\nfrom veilstream.gateway.records import *\nfrom veilstream.gateway.store import Store\n"
        f"store = Store({str(path)!r}, {{'': Binding('policy 1', 'chain 1')}})\n"
        "store.commit(Batch([Stream('', 'b', None, 3, 1.5)]))\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def test_the_count_of_another_place_does_not_speak_for_this_run(tmp_path):
    """Killed under one name, its log is there; under another the count was right, and commits were lost."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    store = Store(tmp_path / "a" / "s.db", ONE)
    store.commit(Batch([stream()]))
    store.close()
    (tmp_path / "a" / "s.db").rename(tmp_path / "b" / "s.db")
    crashed(tmp_path / "b" / "s.db")
    (tmp_path / "b" / "s.db").rename(tmp_path / "a" / "s.db")
    with pytest.raises(StoreError, match="lost commits"):
        Store(tmp_path / "a" / "s.db", ONE)
    (tmp_path / "a" / "s.db").rename(tmp_path / "b" / "s.db")
    again = Store(tmp_path / "b" / "s.db", ONE)
    assert [s.name for s in again.streams()] == ["a", "b"]
    again.close()


# --- written over ------------------------------------------------------------------------------------------


def overwrite(path, data) -> None:
    """As `cp` does it: the same inode."""
    at = path.stat().st_ino
    path.write_bytes(data)
    assert path.stat().st_ino == at


def checkpointed(core) -> None:
    core.store.file.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("what", ["old copy", "older copy", "other store", "nothing", "garbage"])
def test_a_file_written_over_is_noticed_at_the_next_commit_and_at_the_next_start(tmp_path, what, noticed):
    """It was not in 60 commits; then old pages were mixed with new ones."""
    art, path = artefact(tmp_path / "p.veil"), tmp_path / "s.db"
    with core_of(art, tmp_path / "other.db") as core:
        core.process([Reading("c", t, t, 3.0) for t in range(5)])
    with core_of(art, path) as core:
        core.process([Reading(s, t, t, 3.0) for s in "ab" for t in range(5)])
    copies = {"older copy": path.read_bytes(), "other store": (tmp_path / "other.db").read_bytes()}
    copies |= {"nothing": b"", "garbage": os.urandom(8192)}
    with core_of(art, path) as core:
        core.process([Reading("a", 5, 5, 3.0)])
        checkpointed(core)
        copies["old copy"] = path.read_bytes()
        core.process([Reading("a", 6, 6, 3.0)])  # a log that begins
        checkpointed(core)
        core.process([Reading("a", 7, 7, 3.0)])
        files = {p: p.read_bytes() for p in tmp_path.glob("s.db*") if p.suffix != ".db-shm"}
        overwrite(path, copies[what])
        if noticed:
            for _ in range(2):
                with pytest.raises(StoreError, match=r"written over while in use.*Stop the gateway, put all"):
                    core.process([Reading("a", 9, 9, 3.0)])
            with pytest.raises(StoreError):
                core.process([Reading("a", 3, 3, 3.0)])  # not even what is in it already
            with pytest.raises(StoreError):
                core.probe()
        else:
            with pytest.raises(StoreError, match="written over"):
                core.close()
            core.close = lambda: None
    for _ in range(2):
        with pytest.raises(StoreError, match=r"lost commits|cannot be used|damaged") as error, core_of(art, path):
            pass
        assert "\n" not in str(error.value)
    for file, data in files.items():
        file.write_bytes(data)
    with core_of(art, path) as core:
        again = core.process([Reading(s, t, t, 9.0) for s, n in (("a", 8), ("b", 5)) for t in range(n)]).outcomes
        assert {o.status.name for o in again} == {"repeated"}


@pytest.mark.parametrize("what", ["nothing", "older", "another"])
def test_a_log_written_over_is_noticed_at_the_next_commit(tmp_path, what):
    """Commits went on into a log that no start could have read: they were released, and lost."""
    art, log = artefact(tmp_path / "p.veil"), tmp_path / "s.db-wal"
    with core_of(art, tmp_path / "other.db") as core:
        core.process([Reading("a", 1, 1, 3.0)])
        another = (tmp_path / "other.db-wal").read_bytes()
    with core_of(art, tmp_path / "s.db") as core:
        core.process([Reading("a", 1, 1, 3.0)])
        older = log.read_bytes()
        core.process([Reading("a", 2, 2, 3.0)])
        whole = log.read_bytes()
        overwrite(log, {"nothing": b"", "older": older, "another": another * 9}[what])
        for step in (3, 1):
            with pytest.raises(StoreError, match="its log was written over"):
                core.process([Reading("a", step, step, 3.0)])
    with pytest.raises(StoreError, match="lost commits"), core_of(art, tmp_path / "s.db"):
        pass
    log.write_bytes(whole)
    with core_of(art, tmp_path / "s.db") as core:
        assert {o.status.name for o in core.process([Reading("a", t, t, 9.0) for t in (1, 2)]).outcomes} == {"repeated"}


def test_what_leaves_the_file_as_it_was_stops_nobody(tmp_path):
    """A copy since the log began holds all that the log does not; times and rights are not what is in it."""
    path = tmp_path / "s.db"
    with core_of(artefact(tmp_path / "p.veil"), path) as core:
        core.process([Reading("a", 1, 1, 3.0)])
        copy = path.read_bytes()
        core.process([Reading("a", 2, 2, 3.0)])
        overwrite(path, copy)
        os.utime(path, (1, 1))
        path.chmod(0o400)
        core.process([Reading("a", 3, 3, 3.0)])
        path.chmod(0o600)
    with core_of(artefact(tmp_path / "p.veil"), path) as core:
        assert {o.status.name for o in core.process([Reading("a", t, t, 9.0) for t in (1, 2, 3)]).outcomes} == {
            "repeated"
        }


def test_every_log_has_a_mark_of_its_own_also_after_a_commit_that_fell(tmp_path):
    store = Store(tmp_path / "s.db", ONE)
    marks = []
    for step in range(4):
        s = store.load("", "a") or Stream("", "a")
        s.last_step = step
        if step:
            with pytest.raises(StoreError):  # a step that was released: all of it falls, the new mark too
                store.commit(Batch([s], [(s, 0, 0.5, b"again")]))
        store.commit(Batch([s], [(s, step, 0.5, b"x")]))
        store.file.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        marks.append(int.from_bytes((tmp_path / "s.db").read_bytes()[60:64], "big"))
    store.close()
    assert marks == sorted(set(marks))


def test_a_disk_that_cannot_be_read_is_a_line(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", broken)
            for ask in (lambda: core.process([Reading("a", 1, 1, 3.0)]), core.unsent, core.probe):
                with pytest.raises(StoreError, match="Input/output error"):
                    ask()
        assert core.process([Reading("a", 1, 1, 3.0)]).outcomes[0].release is not None


# --- no file at all ----------------------------------------------------------------------------------------


def test_memory_is_no_place_for_a_store_unless_that_is_asked_for(tmp_path):
    """Who said so by mistake was told that there is one stream in the store."""
    artefact(tmp_path / "p.veil")
    refused("release", tmp_path / "p.veil", "--store", ":memory:", says="--store must be a file")


def test_what_is_no_ordinary_file_is_no_store(tmp_path):
    """It was advised to run chmod 600 on the null device."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(StoreError, match="not an ordinary file"):
            Store(path, ONE)


# --- drills ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_owners_at_once_or_in_turn_release_no_step_twice():
    done = Drill("two owners", "", owners.two).run("7", 0, 0.4)
    assert done.finding is None, done.finding.where
    assert done.attacks > 0


def test_files_written_over_release_no_step_twice():
    done = Drill("written over", "", owners.overwritten).run("7", 0, 0.3)
    assert done.finding is None, done.finding.where
    assert done.attacks > 0
