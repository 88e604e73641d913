"""The .veil file: what goes in comes out, and nothing else gets in."""

import gzip
import json
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

from oracles import recomputed
from veilstream import artefact as veil
from veilstream.artefact import load, provenance, save
from veilstream.control import controller
from veilstream.control.automaton import window
from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.controller import Controller, schedule
from veilstream.data.spec import Recording
from veilstream.data.synthetic import city, household
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Both, Budget, Instantaneous, Problem


@pytest.fixture
def model(tmp_path):
    source = city(500)
    path = tmp_path / "model.veil"
    save(path, chain=source.chain, states=source.states, period_s=300.0, provenance=provenance("veil fit x", 7, "ab12"))
    return path, source


def table(n, w=1, seed=0):
    rng, memory = np.random.default_rng(seed), window(n, w)
    r, K = rng.dirichlet(np.ones(n), (1, n**w)), rng.uniform(0.1, 1, (1, len(memory.to), n, n))
    return Controller(memory, r, K, window=w)


def test_a_model_comes_back(model):
    path, source = model
    art = load(path)
    assert art.policy is None
    assert art.problem is None
    np.testing.assert_array_equal(art.chain.transition, source.chain.transition)
    np.testing.assert_array_equal(art.states.coordinates, source.states.coordinates)
    assert art.states.names == source.states.names
    assert (art.states.unit, art.period_s, art.study_only) == ("km", 300.0, ())
    assert art.provenance["command"] == "veil fit x"
    assert (art.provenance["seed"], art.provenance["data_sha256"]) == (7, "ab12")
    assert "numpy" in art.provenance["versions"]


def test_provenance_takes_whatever_a_caller_has(tmp_path):
    odd = {"a": np.float64(0.5), "b": np.arange(3), "c": float("inf"), "d": (1, None), 5: tmp_path}
    save(tmp_path / "x.veil", chain=city(10).chain, provenance=odd)
    back = load(tmp_path / "x.veil").provenance
    assert back == {"a": 0.5, "b": [0, 1, 2], "c": "inf", "d": [1, None], "5": str(tmp_path)}


def test_the_recording_comes_back_and_says_what_no_gateway_can_do(tmp_path):
    source = city(500)
    recording = Recording(600, 5.0, "mean", "bridge", 1200, "close", "drop", 150.5, 4, 300)
    save(tmp_path / "m.veil", chain=source.chain, states=source.states, recording=recording)
    art = load(tmp_path / "m.veil")
    assert art.recording == recording
    assert (art.period_s, art.epoch_s) == (600.0, 5.0)
    assert art.study_only == recording.study_only
    assert len(art.study_only) == 3
    save(tmp_path / "p.veil", chain=source.chain, period_s=300)
    assert load(tmp_path / "p.veil").recording == Recording(300.0)
    with pytest.raises(InputError, match=r"p\.veil: give a recording, or period_s and epoch_s"):
        save(tmp_path / "p.veil", chain=source.chain, period_s=300, recording=recording)


def test_equal_input_gives_equal_bytes(model, tmp_path):
    path, source = model
    again = tmp_path / "again.veil"
    whence = provenance("veil fit x", 7, "ab12")
    made = save(again, chain=source.chain, states=source.states, period_s=300.0, provenance=whence)
    assert again.read_bytes() == path.read_bytes()
    assert made.sha256 == load(path).sha256


@pytest.mark.parametrize(
    "constraint",
    [
        Average(weight=1.0),
        Average(limit=0.8),
        Instantaneous(2.0),
        Budget(0.1),
        Both(Average(limit=1.0), Instantaneous(5.0)),
    ],
    ids=str,
)
def test_policies_and_constraints_come_back(tmp_path, constraint):
    source = household(300)
    n = len(source.states)
    problem = Problem(source.chain, source.states.distances(), constraint)
    belief = BeliefPolicy(source.chain, GreedyRule(problem.cost(1.0)))
    path = tmp_path / "p.veil"
    for policy in (table(n), table(n, 2), belief, schedule((table(n), table(n, seed=1)), (3, 4))):
        save(path, policy, problem=problem, states=source.states, period_s=1800)
        art = load(path)
        assert art.problem.constraint == constraint
        np.testing.assert_array_equal(art.problem.distortion, problem.distortion)
        memory, other = policy.start(), art.policy.start()
        for y in (0, 3, 1, 2):
            assert art.policy.channel(other) == recomputed(policy.channel(memory))
            memory, other = policy.update(memory, y), art.policy.update(other, y)


def test_per_state_limits_and_lifted_chains_come_back(tmp_path):
    source = household(2000)
    limits = tuple(np.linspace(1, 2, len(source.states)))
    chain = MarkovChain.fit([source.path], len(source.states), order=2)
    problem = Problem(chain, source.states.distances(), Instantaneous(limits))
    save(tmp_path / "p.veil", problem=problem, states=source.states)
    art = load(tmp_path / "p.veil")
    assert art.problem.constraint.limit == pytest.approx(limits)
    assert art.chain.histories == chain.histories
    assert art.chain.order == 2
    np.testing.assert_array_equal(art.chain.counts, chain.counts)
    assert art.study_only == ()


def test_a_chain_with_impossible_moves_is_study_only(tmp_path):
    save(tmp_path / "z.veil", chain=MarkovChain([[0.5, 0.5], [1.0, 0.0]]))
    assert "probability 0" in load(tmp_path / "z.veil").study_only[0]


# --- damage and malice -----------------------------------------------------------------------------------


def refused(path, says=""):
    with pytest.raises(InputError) as error:
        load(path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert path.name in str(error.value)


def test_every_truncation_and_flip_is_refused(model):
    path, _ = model
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        refused(path)
    path.write_bytes(data + b"x")
    refused(path, "damaged")
    for place in rng.integers(0, len(data), 400):
        changed = bytearray(data)
        changed[place] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        refused(path)


def test_a_changed_number_is_found(model):
    path, _ = model
    data = bytearray(path.read_bytes())
    data[-5] ^= 0xFF
    path.write_bytes(data)
    refused(path, "damaged or altered")


def test_foreign_files_are_refused_unopened(tmp_path):
    path = tmp_path / "bomb.veil"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a", b"\0" * 20_000_000)
    assert path.stat().st_size < 100_000
    refused(path, "zip archive")
    path.write_bytes(gzip.compress(b"\0" * 1_000_000))
    refused(path, "gzip")
    path.write_bytes(pickle.dumps({"a": 1}))
    refused(path, "pickle")
    path.write_bytes(b"hello world, this is text")
    refused(path, "not a .veil file")
    path.write_bytes(save_tensors({"a": np.ones(3)}))
    refused(path, "no veilstream description")
    refused(tmp_path / "nowhere.veil", "no such file")
    (tmp_path / "folder.veil").mkdir()
    refused(tmp_path / "folder.veil", "not a file")


def raw(path, header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def test_headers_that_claim_the_moon(tmp_path):
    path = tmp_path / "h.veil"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}" * 10)
    refused(path, "claims")
    raw(path, b"[" * 100_000)
    refused(path, "not a .veil file")
    raw(path, b'{"a":' + b"[" * 100_000)
    refused(path, "damaged or truncated")
    raw(path, {"a": {"dtype": "F64", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}, b"\0" * 8)
    refused(path, "do not fit")
    raw(path, {"a": {"dtype": "F64", "shape": [10**6], "data_offsets": [0, 8 * 10**6]}}, b"\0" * 8)
    refused(path, "truncated (its arrays do not fit")
    raw(path, {"a": {"dtype": "OBJ", "shape": [1], "data_offsets": [0, 8]}}, b"\0" * 8)
    refused(path, "do not fit")


def forged(path, change):
    """A file with a right checksum and a wrong content, as a stranger could make it."""
    meta, arrays = veil.unpack(path, "x")
    meta.pop("sha256")
    change(meta, arrays)
    meta["sha256"] = veil._digest(meta, arrays)
    path.write_bytes(veil.pack(meta, arrays))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m, a: a["chain/transition"].__setitem__((0, 0), 5.0), "must sum to 1"),
        (lambda m, a: a["chain/transition"].__setitem__((0, 0), -1.0), "negative"),
        (lambda m, a: a["chain/transition"].__setitem__((0, 0), np.nan), "not a number"),
        (lambda m, a: a.update({"chain/transition": np.ones(4)}), "square"),
        (lambda m, a: a.update({"chain/initial": np.ones(3) / 3}), "initial"),
        (lambda m, a: a.update({"states/coordinates": a["states/coordinates"][:5]}), "distinct names"),
        (lambda m, a: a["states/coordinates"].__setitem__((0, 0), 1e9), "outside latitude"),
        (lambda m, a: a.pop("chain/transition"), "not complete"),
        (lambda m, a: m.pop("chain"), "not complete"),
        (lambda m, a: m["states"].update(names=["\x1b[2J"] * 10), "distinct"),
        (lambda m, a: m.update(version=3), "newer"),
        (lambda m, a: m.update(version=1), "older veilstream; make it again with `veil fit` and `veil solve`"),
        (lambda m, a: m.update(version="x"), "unknown version"),
        (lambda m, a: m["recording"].update(period_s=-1), "positive"),
        (lambda m, a: m["recording"].update(period_s="soon"), "positive"),
        (lambda m, a: m["recording"].update(epoch_s=None), "epoch_s must be a number"),
        (lambda m, a: m["recording"].update(bin="exec"), "must be one of"),
        (lambda m, a: m["recording"].update(min_samples=[]), "at least 1"),
        (lambda m, a: m["recording"].update(more=1), "not complete"),
        (lambda m, a: m.update(recording=[]), "not complete"),
        (lambda m, a: m.pop("recording"), "not complete"),
        (lambda m, a: m.update(policy={"kind": "exec"}), "unknown kind"),
        (lambda m, a: m.update(policy={"kind": "controller", "window": 10**9, "first": 0}), "window must be"),
        (lambda m, a: m.update(policy={"kind": "controller", "window": True, "first": 0}), "window must be"),
        (lambda m, a: m.update(policy={"kind": "controller", "window": None, "first": 0}), "not complete"),
        (lambda m, a: m.update(policy={"kind": "window", "window": 1, "first": 0}), "unknown kind"),
        (lambda m, a: m.update(chain=7), "not complete"),
    ],
)
def test_forged_content_is_refused_in_one_line(model, change, says):
    path, _ = model
    forged(path, change)
    refused(path, says)


def test_a_policy_that_is_no_law_is_refused(tmp_path):
    source = household(300)
    problem = Problem(source.chain, source.states.distances(), Average(weight=1.0))
    path = tmp_path / "p.veil"
    for change in (
        lambda a: a["policy/kernel"].__setitem__((0, 0, 0, 0), -10.0),
        lambda a: a["policy/kernel"].fill(0),
        lambda a: a["policy/output_model"].__setitem__((0, 5, slice(None)), 0.0),  # a memory met only later
        lambda a: a["policy/output_model"].__setitem__((0, 5, 0), np.inf),
    ):
        save(path, table(len(source.states)), problem=problem, states=source.states)
        forged(path, lambda m, a, change=change: change(a))
        refused(path, "not a law")


CUTS = (slice(0), slice(1, None), np.s_[..., :-1], np.s_[None])


@pytest.mark.parametrize("policy", [table(6, 2), schedule((table(6), table(6, 2, 1)), (3, 2))], ids=["window", "turns"])
def test_arrays_of_a_policy_that_do_not_fit_each_other_are_refused(tmp_path, policy):
    """Every array cut short, made longer, pointing elsewhere or left out: one line, and nothing is indexed by it."""
    source, path = household(300), tmp_path / "p.veil"
    problem = Problem(source.chain, source.states.distances(), Average(weight=1.0))
    for key in policy.export()[1]:
        name = f"policy/{key}"
        changes = [lambda a, cut=cut, name=name: a.update({name: np.ascontiguousarray(a[name][cut])}) for cut in CUTS]
        if key in ("group", "to", "turn"):
            for value in (-1, 10**6, 2**62):
                changes.append(lambda a, value=value, name=name: a[name].flat.__setitem__(-1, value))
            changes.append(lambda a, name=name: a.update({name: a[name].astype(float)}))
        if key != "turn":
            changes.append(lambda a, name=name: a.pop(name))
        for change in changes:
            save(path, policy, problem=problem, states=source.states)
            forged(path, lambda m, a, change=change: change(a))
            if key == "turn" and load_if_it_can(path) is not None:
                continue  # a shorter round of the same phases
            refused(path)


def load_if_it_can(path):
    try:
        return load(path)
    except InputError:
        return None


@pytest.mark.parametrize("first", [-1, 36, 2**70, None, "x", [], 1e308])
def test_a_first_memory_that_is_none_is_refused(tmp_path, first):
    source, path = household(300), tmp_path / "p.veil"
    problem = Problem(source.chain, source.states.distances(), Average(weight=1.0))
    save(path, table(6, 2), problem=problem, states=source.states)
    forged(path, lambda m, a: m["policy"].update(first=first))
    refused(path)


def unfolding(m, a, sizes):
    """All the memories that two numbers each can be written for, in groups of these sizes."""
    n = a["policy/kernel"].shape[2]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    a["policy/group"], a["policy/to"] = groups, np.zeros((len(sizes), 2), np.int64)
    a["policy/output_model"] = np.full((1, len(groups), 2), 0.5)
    a["policy/kernel"] = np.ones((1, len(sizes), n, 2))
    m["policy"]["window"] = None


@pytest.mark.parametrize(
    ("sizes", "fits"), [([300], True), ([100, 200], True), ([300_000], False), ([1, 150_000], False)]
)
def test_a_small_file_does_not_become_a_large_policy(tmp_path, monkeypatch, sizes, fits):
    monkeypatch.setattr(controller, "MAX_CELLS", 1_000_000)  # 2 GB of numbers: too much for a test
    source, path = household(300), tmp_path / "p.veil"
    problem = Problem(source.chain, np.ones((6, 2)), Average(weight=1.0))
    memoryless = Controller.of_table(np.full((6, 2), 0.5))
    save(path, memoryless, problem=problem)
    forged(path, lambda m, a: unfolding(m, a, sizes))
    if fits:
        assert len(load(path).policy.automaton) == 300
    else:
        refused(path, "too large for a file")


def test_a_policy_made_for_another_chain_than_its_file_is_refused(tmp_path):
    source, path = household(300), tmp_path / "p.veil"
    n, own = len(source.states), source.chain
    problem = Problem(own, source.states.distances(), Average(weight=1.0))
    rule, even = GreedyRule(problem.cost(1.0)), np.full((n, n), 1 / n)
    others = MarkovChain(even, own.initial), MarkovChain(own.transition, even[0])
    for chain in (own, *others):
        made = table(n).made_for(chain)
        for policy in (made, BeliefPolicy(chain, rule), schedule((table(n), made), (1, 1))):
            if chain is own:
                save(path, policy, problem=problem)
                loaded = load(path)
                assert loaded.policy.chain is loaded.chain  # the file holds one, and no policy can bring another
                continue
            with pytest.raises(InputError, match=r"p\.veil: the policy was made for another chain than the file's"):
                save(path, policy, problem=problem)


def test_a_header_length_that_looks_like_a_pickle_is_read(tmp_path):
    """Its first bytes are a length: 0x0480 and 0x0580 are good ones."""
    source = city(10)
    found = set()
    for n in range(0, 1200, 8):
        path = tmp_path / "m.veil"
        save(path, chain=source.chain, states=source.states, provenance={"pad": "x" * n})
        assert load(path).provenance["pad"] == "x" * n
        found.add(path.read_bytes()[:2])
    assert b"\x80\x04" in found


def test_what_cannot_be_loaded_is_not_written(tmp_path):
    source = household(300)
    with pytest.raises(InputError, match=r"x\.veil: 6 states but a chain on 10"):
        save(tmp_path / "x.veil", chain=city(10).chain, states=source.states)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"x\.veil: a \.veil file needs a chain"):
        save(tmp_path / "x.veil")
    with pytest.raises(InputError, match=r"x\.veil: .*must be a positive number"):
        save(tmp_path / "x.veil", chain=city(10).chain, period_s=0)


def test_a_process_that_only_reads_files_knows_every_kind_of_policy():
    """A gateway loads no solver: what is made in one process is released in another."""
    control = Path(veil.__file__).parent / "control"
    kinds = {k for p in control.rglob("*.py") for k in re.findall(r"^class .*kind=\"(\w+)\"\):", p.read_text(), re.M)}
    code = "import veilstream.artefact, veilstream.control.policy as p; print(*p.KINDS)"
    known = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"controller", "frame", "ladder", "belief", "sampled"} == kinds <= set(known)
