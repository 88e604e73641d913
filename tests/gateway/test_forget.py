"""Forgetting: what a gateway keeps of a person goes to the last byte, her steps stay closed, her bits stay counted."""

import json
import subprocess
import sys

import pytest

from gatewaykit import artefact, core_of
from veilcli import refused, veil
from veilstream.gateway.owner import forget
from veilstream.gateway.records import FORWARD, Batch, Binding, Private, Stream
from veilstream.gateway.store import Store
from veilstream.gateway.wire import Reading, Refusal

ONE = {"": Binding("policy 1", "chain 1")}
CANARIES = [
    b"canary-drift",
    b"canary-name",
    b"canary-memory",
    b"canary-belief",
    b"canary-release",
    b"canary-mail",
    b"canary-point",
]


def filled(path, other="bob"):
    """Two streams with everything that can be kept of one; the first one's is all canaries."""
    store = Store(path, ONE)
    private = Private(5, 8, 3, 1, 0.5, 0.25)
    ann = Stream("", "canary-name", None, 7, 2.5, b"canary-memory", b"canary-belief", private)
    ann.private.pending_point = b"canary-point"
    ann.private.drift = b"canary-drift"
    bob = Stream("", other, None, 7, 1.5, b"m", b"b", Private(5))
    mail = [(ann.name, "out/1", b"canary-mail"), (ann.name, FORWARD, b"canary-mail"), (other, "out/bob", b"bob-mail")]
    store.commit(Batch([ann, bob], [(ann, 7, 2.5, b"canary-release"), (bob, 7, 1.5, b"bob-release")], mail))
    for step in range(8, 200):  # pages that are freed, and a log
        ann.last_step, ann.total = step, ann.total + 0.01
        store.commit(Batch([ann], [(ann, step, ann.total, b"canary-release %d" % step)]))
    store.set_aside("ValueError", b"canary")
    return store


def bytes_beside(path):
    return b"".join(p.read_bytes() for p in path.parent.iterdir() if p.name.startswith(path.name))


def test_no_byte_of_her_is_left_in_any_file(tmp_path):
    path = tmp_path / "s.db"
    store = filled(path)
    assert all(canary in bytes_beside(path) for canary in CANARIES)
    store.prune(50)  # deleted before: free pages
    forget(store, "canary-name")
    assert not [canary for canary in CANARIES if canary in bytes_beside(path)]  # while it is open: the log too
    assert store.file.read("SELECT count(*) FROM private_unhandled") == [(0,)]
    store.close()
    assert not [canary for canary in CANARIES if canary in bytes_beside(path)]


def test_without_it_the_canaries_are_there(tmp_path):
    path = tmp_path / "s.db"
    filled(path).close()
    assert all(canary in bytes_beside(path) for canary in CANARIES)


def test_others_keep_what_is_theirs(tmp_path):
    path = tmp_path / "s.db"
    store = filled(path)
    before = store.load("", "bob")
    (gone,) = forget(store, "canary-name")
    assert (gone.last_step, gone.releases, gone.unsent, gone.private) == (199, 193, 2, True)
    assert store.load("", "bob") == before and store.find(before, 7) == (b"bob-release",)
    assert [(topic, body) for _, topic, body in store.unsent()] == [("out/bob", b"bob-mail")]
    assert [s.name for s in store.streams()] == ["bob"] and store.count_streams() == 1
    store.close()
    Store(path, ONE).close()  # and it opens again


@pytest.mark.parametrize(("topic", "forward"), [("shared/ne/phone", False), ("home/config", False), (FORWARD, True)])
def test_unsent_messages_go_with_their_stream_whatever_their_topic(tmp_path, topic, forward):
    store = Store(tmp_path / "s.db", ONE)
    mail = [("ne/phone", topic, b"sealed"), ("ne", topic, b"hers"), ("phone", topic, b"his")]
    store.commit(Batch([Stream("", "ne/phone", None, 1, 0.5)], [], mail))
    (gone,) = forget(store, "ne/phone")
    assert gone.unsent == 1
    left = [("ne", b"hers"), ("phone", b"his")] if forward else [(topic, b"hers"), (topic, b"his")]
    assert [row[1:] for row in store.unsent(forward=forward)] == left
    store.close()


def test_her_steps_stay_closed_and_her_bits_stay_counted(tmp_path):
    art, path = artefact(tmp_path / "p.veil"), tmp_path / "s.db"
    with core_of(art, path) as core:
        first = core.process([Reading("ann", step, step, 3.0) for step in range(10)]).outcomes
        core.process([Reading("bob", 0, 0, 3.0)])
    bits = first[-1].release.leaked_bits
    store = Store(path, {}, idle=None)
    forget(store, "ann")
    store.close()
    with core_of(art, path) as core:
        again = core.process([Reading("ann", step, step, 5.0) for step in range(10)]).outcomes
        assert {o.status for o in again} == {Refusal.late}  # never a second draw
        assert core.streams == 1
        later = core.process([Reading("ann", 10, 10, 5.0)]).outcomes[0].release
        assert later.leaked_bits >= bits
        assert [s.name for s in core.store.streams()] == ["ann", "bob"]
    with core_of(art, path) as core:  # she is there again, under her name
        assert core.process([Reading("ann", 10, 10, 9.0)]).outcomes[0].release == later
        assert core.streams == 2
        last = core.process([Reading("ann", 11, 11, 9.0)]).outcomes[0].release.leaked_bits
        assert last >= later.leaked_bits
    store = Store(path, {}, idle=None)
    (gone,) = forget(store, "ann")  # and can be forgotten again
    assert (gone.last_step, round(gone.leaked_bits, 6), gone.before) == (11, last, False)
    store.close()


def test_a_clock_does_not_tick_for_her(tmp_path):
    art, path = artefact(tmp_path / "p.veil", period_s=60.0), tmp_path / "s.db"
    with core_of(art, path, now=lambda: 600.0, clock=True) as core:
        core.process([Reading("ann", 10, 600, 3.0), Reading("bob", 10, 600, 3.0)])
        assert len(core.tick("", 10)) == 2
    store = Store(path, {}, idle=None)
    forget(store, "ann")
    store.close()
    with core_of(art, path, now=lambda: 660.0, clock=True) as core:
        assert [o.release.stream for o in core.tick("", 11)] == ["bob"]


def test_a_changed_policy_keeps_her_steps_closed(tmp_path):
    path = tmp_path / "s.db"
    with core_of(artefact(tmp_path / "p.veil"), path) as core:
        core.process([Reading("ann", step, step, 3.0) for step in range(4)])
    store = Store(path, {}, idle=None)
    (gone,) = forget(store, "ann")
    store.close()
    with core_of(artefact(tmp_path / "q.veil", seed=1), path) as core:
        assert core.process([Reading("ann", 3, 3, 3.0)]).outcomes[0].status is Refusal.late
        assert core.process([Reading("ann", 4, 4, 3.0)]).outcomes[0].release.leaked_bits >= round(gone.leaked_bits, 6)


def test_the_command_says_what_it_did_and_what_remains(tmp_path):
    path = tmp_path / "s.db"
    filled(path).close()
    told = json.loads(veil("forget", "canary-name", "--store", path, "--json").stdout)
    assert told["spaces"][0] | {"leaked_bits": 0} == {
        "space": "", "last_step": 199, "leaked_bits": 0, "releases": 193, "unsent": 2, "private": True, "before": False,
    }  # fmt: skip
    assert any("second time" in line for line in told["remains"])
    again = veil("forget", "canary-name", "--store", path).stdout
    assert "had been forgotten before" in again and "what remains" in again
    shown = veil("forget", "bob", "--store", path).stdout
    assert "its steps up to 7 stay closed, and 1.50 bits stay counted" in shown


def test_bad_input_is_one_line_and_changes_nothing(tmp_path):
    refused("forget", "ann", "--store", tmp_path / "none.db", says="no store")
    assert not list(tmp_path.iterdir())
    path = tmp_path / "s.db"
    store = filled(path)
    code = f"import sys; sys.argv=['veil','forget','bob','--store',{str(path)!r}]\n"
    code += "from veilstream.apps.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "in use: stop the gateway" in done.stderr
    assert store.load("", "bob").last_step == 7
    store.close()
    refused("forget", "carl", "--store", path, says="no stream 'carl'")
