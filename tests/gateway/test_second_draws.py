"""A step is drawn once, whatever is renamed, deleted, put back, or flipped under a gateway."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from attack import files
from attack.drill import Drill
from attack.files import readings
from gatewaykit import artefact, core_of
from veilstream.errors import InputError
from veilstream.gateway.broker import BrokerSettings
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.space import Space
from veilstream.gateway.spec import ServeSpec
from veilstream.gateway.store import Batch, Binding, Store, StoreError, Stream
from veilstream.gateway.topics import Route, renames
from veilstream.gateway.wire import Reading

ONE = {"": Binding("policy 1", "chain 1")}
TWO = {**ONE, "meters": Binding("policy 2", "chain 2")}

# --- names -------------------------------------------------------------------------------------------------


def test_a_space_has_a_name_of_its_own_whatever_its_topics_are_called(tmp_path):
    def spaces(*routes: str) -> list[str]:
        return [r.space for r, _ in ServeSpec(policy=tmp_path / "p.veil", mqtt="x", route=routes).routes()]

    assert spaces("meters/+ m/+ x/meter.veil") == spaces("meters/# m/# y/meter.veil") == ["", "meter"]
    assert spaces("meters/+ m/+ meter.veil old", "cars/+ c/+ meter.veil") == ["", "old", "meter"]
    with pytest.raises(InputError, match="a name of its own"):
        spaces("meters/+ m/+ meter.veil", "cars/+ c/+ meter.veil")


def test_streams_of_a_space_that_is_not_served_are_not_forgotten(tmp_path):
    store = Store(tmp_path / "s.db", TWO)
    store.commit(Batch([Stream("meters", "7", last_step=3)]))
    store.close()
    says = r"1 stream of the space 'meters'.*IN OUT POLICY meters.*`idle=meters`"
    with pytest.raises(StoreError, match=says) as error:
        Store(tmp_path / "s.db", {**ONE, "meters/#": TWO["meters"]})
    assert "\n" not in str(error.value)
    Store(tmp_path / "s.db", ONE, idle=["meters"]).close()
    again = Store(tmp_path / "s.db", TWO)
    assert again.load("meters", "7").last_step == 3
    again.close()


@pytest.mark.parametrize(
    ("old", "new", "other_names"),
    [
        ("meters/+", "meters/#", False),
        ("meters/+", "houses/meters/+", False),
        ("owntracks/+/+", "owntracks/jane/+", True),
        ("owntracks/#", "owntracks/+/phone", True),
        ("a/#", "a/+/#", False),
        ("+/x", "a/+", True),
    ],
)
def test_a_filter_that_gives_the_same_topic_another_name_is_refused(tmp_path, old, new, other_names):
    assert renames(old, new) == renames(new, old) == other_names
    art = artefact(tmp_path / "p.veil")
    for source, refused in ((old, False), (new, other_names), (old, False)):
        with core_of(art, tmp_path / "s.db") as core:
            make = lambda: MqttGateway(core, [Route(source, f"out/{source}")], BrokerSettings())  # noqa: B023, E731
            if refused:
                with pytest.raises(InputError, match="drawn a second time"):
                    make()
            else:
                make()


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["s.db", "s.db-wal"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_store_that_goes_while_in_use_is_noticed_at_the_next_commit(tmp_path, what, how):
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        core.process(readings())
        if how == "replaced":
            shutil.copy(tmp_path / what, tmp_path / "copy")
            os.replace(tmp_path / "copy", tmp_path / what)
        else:
            (tmp_path / what).unlink()
        for _ in range(2):
            with pytest.raises(StoreError, match=f"{what} was deleted or replaced"):
                core.process([Reading("a", 9, 9, 3.0)])
        with pytest.raises(StoreError):
            core.probe()
        assert core.failing


def crash(tmp_path) -> None:
    """A gateway that is killed after it has released; what it committed last is in the log alone."""
    code = (
        "import os, sys\nsys.path.insert(0, 'tests/kit')\n"
        "from gatewaykit import core_of\nfrom veilstream.artefact import load\n"
        "from veilstream.gateway.wire import Reading\n"
        f"with core_of(load({str(tmp_path / 'p.veil')!r}), {str(tmp_path / 's.db')!r}) as core:\n"
        "    core.process([Reading(s, t, t, 3.0) for s in 'ab' for t in range(5)])\n"
        "    os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("gone", [["s.db-wal"], ["s.db-wal", "s.db-count"], ["s.db-count"]])
def test_a_log_that_vanished_is_noticed_at_the_next_start(tmp_path, gone):
    art = artefact(tmp_path / "p.veil")
    crash(tmp_path)
    kept = {name: (tmp_path / name).read_bytes() for name in ("s.db", "s.db-wal", "s.db-count")}
    for name in gone:
        (tmp_path / name).unlink()
    for _ in range(2):  # and it stays so
        with pytest.raises(StoreError, match="lost commits") as error, core_of(art, tmp_path / "s.db"):
            pass
        assert "\n" not in str(error.value)
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    with core_of(art, tmp_path / "s.db") as core:
        assert {o.status.name for o in core.process(readings(9.0)).outcomes} == {"repeated"}


def test_an_old_copy_put_back_is_noticed(tmp_path):
    art = artefact(tmp_path / "p.veil")
    with core_of(art, tmp_path / "s.db") as core:
        core.process(readings())
    old = (tmp_path / "s.db").read_bytes()
    with core_of(art, tmp_path / "s.db") as core:
        core.process([Reading("a", 9, 9, 3.0)])
    (tmp_path / "s.db").write_bytes(old)
    with pytest.raises(StoreError, match="old copy"), core_of(art, tmp_path / "s.db"):
        pass


def test_a_store_that_was_closed_may_move_without_its_count(tmp_path):
    art = artefact(tmp_path / "p.veil")
    with core_of(art, tmp_path / "s.db") as core:
        core.process(readings())
    (tmp_path / "s.db").rename(tmp_path / "moved.db")
    with core_of(art, tmp_path / "moved.db") as core:
        assert {o.status.name for o in core.process(readings(9.0)).outcomes} == {"repeated"}


def at_every_line(function, folder, name) -> list[dict[str, bytes]]:
    """The files as they are at every line of the store's code while this is called: what a kill there would leave."""
    found = []

    def look(frame, event, _):
        if frame.f_code.co_filename.endswith(("gateway/store.py", "gateway/database.py", "gateway/place.py")):
            files = {f.name: f.read_bytes() for f in folder.glob(f"{name}*") if not f.name.endswith("-shm")}
            found.extend([files] if files not in found[-1:] else [])
            return look
        return None

    before = sys.gettrace()
    sys.settrace(look)
    try:
        function()
    finally:
        sys.settrace(before)
    return found


@pytest.mark.parametrize("was", ["new", "closed", "moved", "killed"])
def test_who_is_killed_while_it_opens_has_lost_nothing(tmp_path, was):
    """Killed between making the store and writing its count, a gateway was told of lost commits for ever."""
    if was == "killed":
        artefact(tmp_path / "p.veil")
        crash(tmp_path)
    elif was != "new":
        with contextlib.closing(Store(tmp_path / "s.db", ONE)) as store:
            store.commit(Batch(streams=[Stream("", "a")]))
    if was == "moved":
        (tmp_path / "s.db-count").unlink()
    opened = []
    states = at_every_line(lambda: opened.append(Store(tmp_path / "s.db", ONE)), tmp_path, "s.db")
    opened[0].close()
    assert len(states) > 2
    for i, files_then in enumerate(states):
        (tmp_path / str(i)).mkdir()
        for name, data in files_then.items():
            (tmp_path / str(i) / name).write_bytes(data)
            (tmp_path / str(i) / name).chmod(0o600)
        Store(tmp_path / str(i) / "s.db", ONE).close()


def test_the_count_is_on_the_disk_before_the_store_is_in_use(tmp_path, monkeypatch):
    """After a power cut an older count is one; none at all would be lost commits. SQLite syncs by itself."""
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.stat(fd).st_ino), fsync(fd)))
    Store(tmp_path / "s.db", ONE).close()
    assert synced == [(tmp_path / "s.db-count").stat().st_ino, tmp_path.stat().st_ino]


def test_a_count_that_cannot_be_written_is_a_line(tmp_path, monkeypatch):
    def full(fd, data, at):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="No space left"):
        Store(tmp_path / "s.db", ONE)


# --- bytes -------------------------------------------------------------------------------------------------


def test_flipped_bytes_are_a_line_and_never_a_second_draw():
    """One byte of the store changed, anywhere: it is refused with a line, or every step is as it was."""
    done = Drill("flipped bytes", "", files.flips).run("7", 0)
    assert done.finding is None, done.finding.where
    assert done.attacks == 60


def test_a_row_that_was_changed_is_not_believed(tmp_path):
    """By SQL, so that SQLite itself finds nothing wrong."""
    art = artefact(tmp_path / "p.veil")
    with core_of(art, tmp_path / "s.db") as core:
        core.process(readings(), lambda outcomes: [("a", "out/a", b"{}")])
    data = (tmp_path / "s.db").read_bytes()
    for change in (
        "UPDATE streams SET last_step = 1",
        "UPDATE streams SET total = 0",
        "UPDATE streams SET belief = NULL",
        "UPDATE streams SET private = x'90'",
        "UPDATE releases SET message = NULL",
        "UPDATE releases SET message = 7",
        "UPDATE outbox SET topic = 'in/a'",
        "UPDATE spaces SET chain = 'x'",
        "UPDATE meta SET value = '9' WHERE key = 'schema'",
        "DELETE FROM meta",
    ):
        with sqlite3.connect(tmp_path / "s.db") as db:
            db.execute(change)
        db.close()
        with pytest.raises(StoreError):
            everything_again(art, tmp_path / "s.db")
        (tmp_path / "s.db").write_bytes(data)


def everything_again(art, path) -> None:
    with core_of(art, path) as core:
        core.unsent()
        core.process(readings(9.0))


def test_messages_of_the_log_are_what_was_sent(tmp_path):
    space = Space(artefact(tmp_path / "p.veil"))
    with core_of(artefact(tmp_path / "p.veil"), tmp_path / "s.db") as core:
        sent = core.process(readings()).outcomes
    store = Store(tmp_path / "s.db", {"": space.binding})
    assert json.loads(store.find(store.load("", "a"), 0)[0])["released"] == sent[0].release.released
    store.close()
