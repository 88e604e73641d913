"""`veil audit` as a user types it."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import veilstream as vs
from real_data import GEOLIFE, needs_geolife
from veilcli import veil
from veilstream.audit import assemble as settings
from veilstream.audit.measures import Learned, Measure, Setting
from veilstream.audit.spec import AuditSpec
from veilstream.audit.tables import sheets
from veilstream.audit.traces import release
from veilstream.audit.verdict import _against_words, pm
from veilstream.container import pack, unpack
from veilstream.model.interval import Interval


def process(*args, before="", **kwargs):
    """`veil` in a process of its own; `before`: what it runs first."""
    code = f"{before}\nfrom veilstream.apps.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Policies of the toy grid: honest, lying about leakage, lying about distortion, silent; and data for them."""
    path = tmp_path_factory.mktemp("audit")
    problem = vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))
    solution = vs.solve(problem)
    says = {"method": "causal-ba", "leakage": solution.leakage, "distortion": solution.distortion}
    says |= {"startup_bits": solution.startup_bits, "level": "computed exactly"}
    for name, change in {
        "honest": {},
        "liar": {"leakage": 0.6 * solution.leakage},
        "vague": {"distortion": 0.7 * solution.distortion},
    }.items():
        vs.save(path / f"{name}.veil", solution.policy, problem=problem, provenance={"solution": says | change})
    vs.save(path / "silent.veil", solution.policy, problem=problem)
    vs.save(path / "model.veil", chain=problem.chain)
    z = problem.chain.sample(40, 14, seed=5)
    rows = [f"{s},{t},{v}" for s, row in enumerate(z) for t, v in enumerate(row)]
    (path / "toy.csv").write_text("stream,t,value\n" + "\n".join(rows) + "\n")
    (path / "short.csv").write_text("stream,t,value\n" + "".join(f"{s},{t},{t}\n" for s in range(9) for t in range(3)))
    (path / "other.csv").write_text("stream,t,value\n" + "".join(f"0,{t},{t}\n" for t in range(9)))
    (path / "gps.csv").write_text(
        "stream,time,lat,lon\n" + "".join(f"a,{1.7e9 + 300 * t:.0f},40,{116 + t}\n" for t in range(9))
    )
    return path


@pytest.mark.slow
def test_without_jax_the_error_names_the_way_round(folder):
    done = process("audit", folder / "honest.veil", before="import sys; sys.modules.update(jax=None, optax=None)")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--quick" in done.stderr


@pytest.mark.slow
def test_quick_needs_no_jax_and_says_it_in_words(folder):
    hide = "import sys; sys.modules.update(jax=None, optax=None)"
    done = process("audit", folder / "honest.veil", "--quick", "--against", "planar-laplace", "--json", before=hide)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["stands"]
    assert "estimated with an interval: as claimed." in found["verdict"]
    assert "leaks at most" in found["verdict"] and "computed exactly, an upper bound" in found["verdict"]
    (setting,) = found["settings"]
    bits = {k: v["cross_entropy_bits"]["value"] for k, v in setting["adversaries"]["filter"].items()}
    assert bits["truth"] == pytest.approx(0, abs=1e-12)
    assert bits["truth"] < bits["released"] < bits["nothing"]
    nats = setting["adversaries"]["filter"]["released"]["cross_entropy_nats"]["value"]
    assert nats == pytest.approx(bits["released"] * np.log(2))
    assert setting["leakage"]["low"] < found["claim"]["leakage"] + found["claim"]["startup_bits"] / 200
    (other,) = found["against"]
    assert other["distortion"] == pytest.approx(found["distortion"], rel=1e-3)
    assert other["settings"][0]["leakage"]["value"] > setting["leakage"]["value"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "word"), [("liar", "measured leakage"), ("vague", "measured distortion")])
def test_a_claim_that_fails_is_exit_code_1(folder, name, word):
    done = process("audit", folder / f"{name}.veil", "--quick")
    assert done.returncode == 1
    assert "THE CLAIM FAILS" in " ".join(done.stdout.split())
    assert word in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_file_without_a_claim_is_held_to_what_its_table_gives(folder):
    done = process("audit", folder / "silent.veil", "--quick", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["claim"]["level"] == "computed exactly"


@pytest.mark.slow
def test_recorded_traces_with_the_learned_adversary(folder):
    pytest.importorskip("jax")
    work = ("lookbacks=1", "orders=1,2", "copies=3", "streams=12", "steps=30", "seeds=2")
    args = [part for pair in work for part in ("--option", pair)]
    small = "import functools, veilstream.audit.lstm as m; m.Lstm = functools.partial(m.Lstm, units=16, max_rounds=6)"
    done = process("audit", folder / "honest.veil", "--data", folder / "toy.csv", *args, "--json", before=small)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    chain, traces = found["settings"]
    assert (chain["data"], traces["data"], traces["traces"]) == ("chain", "traces", 14)
    names = [one["name"] for one in traces["learned"]]
    assert names == ["LSTM", "LSTM, true past", "chain of order 1", "chain of order 2"]
    first = traces["learned"][0]
    gap, own = first["model_gap_nats"], traces["adversaries"]["predictor"]["released"]["cross_entropy_nats"]["value"]
    assert gap["value"] == pytest.approx(own - first["cross_entropy_nats"]["value"], abs=1e-6)
    assert gap["low"] < gap["value"] < gap["high"]
    assert len(first["per_seed_nats"]) == 2
    assert chain["learned"][0]["least_nats"] <= chain["learned"][0]["cross_entropy_nats"]["high"]


@pytest.mark.parametrize(
    ("policy", "args", "says"),
    [
        ("none", (), "no policy file"),
        ("model", (), "is a model without a policy"),
        ("honest", ("--data", "gps.csv"), "different state spaces: the policy is about values"),
        ("honest", ("--data", "other.csv"), "different state spaces: the policy's states are 0..5"),
        (
            "honest",
            ("--data", "short.csv"),
            "every trace is too short for a look-back of 5: the longest of 9 has 3 steps",
        ),
        ("honest", ("--option", "lookbacks=0"), "a look-back must be at least 1"),
        ("honest", ("--option", "lookbacks=one"), "lookbacks must be whole numbers"),
        ("honest", ("--option", "seeds=1"), "seeds must be a whole number, at least 2"),
        ("honest", ("--option", "look=1"), "--option look: no such option; did you mean lookbacks?"),
        ("honest", ("--against", "myopik"), "did you mean myopic?"),
        ("newer", (), "made by a newer veilstream"),
    ],
)
def test_bad_input_is_one_clear_line(folder, policy, args, says, monkeypatch):
    if policy == "newer":
        meta, arrays = unpack(folder / "honest.veil", "honest")
        (folder / "newer.veil").write_bytes(pack({**meta, "version": 99}, arrays))
    monkeypatch.chdir(folder)
    done = veil("audit", f"{policy}.veil", "--quick", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_data_of_another_city_is_not_this_policys(tmp_path):
    from veilstream.audit.source import recorded_runs
    from veilstream.data.readings import from_arrays
    from veilstream.data.spec import Recording
    from veilstream.data.states import StateSpace
    from veilstream.data.synthetic import city

    source = city(200)
    problem = vs.Problem(source.chain, source.states.distances(), vs.Average(limit=1.0))
    policy = vs.save(
        tmp_path / "p.veil", vs.solve(problem).policy, problem=problem, states=source.states, period_s=300.0
    )
    good = recorded_runs(from_arrays(source.t_s, source.points, "km"), policy)
    assert good.symbols.tolist() == source.path.tolist()
    np.testing.assert_array_equal(np.concatenate(good.points), source.points)
    with pytest.raises(vs.InputError, match="different state spaces: half of the data lies more than"):
        recorded_runs(from_arrays(source.t_s, source.points + 20, "km"), policy)
    stops = StateSpace("stops", source.states.coordinates, source.states.names, "km")
    policy = vs.save(tmp_path / "s.veil", policy.policy, problem=problem, states=stops, period_s=300.0)
    with pytest.raises(vs.InputError, match="the policy was made with `noise='drop'` from"):
        recorded_runs(from_arrays(source.t_s, source.points, "km"), policy, Recording(noise="drop"))


def test_a_file_is_audited_in_one_call_whoever_encoded_its_data(folder):
    from veilstream.audit.assemble import audit_artefact
    from veilstream.audit.source import Recorded, recorded_runs
    from veilstream.data.sources import read

    policy, options = vs.load(folder / "honest.veil"), AuditSpec()
    readings = read([str(folder / "toy.csv")])
    found = audit_artefact(policy, Recorded.of(policy, readings), options)
    again = audit_artefact(policy, Recorded.symbols(policy, recorded_runs(readings, policy).sequences), options)
    assert found.to_json() == again.to_json()
    assert [s.name for s in found.policy.settings] == ["chain", "traces"]
    assert (found.policy.name, found.stands) == ("causal-ba", True)
    assert found.words == found.to_json()["verdict"]
    with pytest.raises(vs.InputError, match="a model without a policy"):
        audit_artefact(vs.load(folder / "model.veil"))


@pytest.mark.slow
@needs_geolife
def test_geolife_is_encoded_as_it_was_fitted(tmp_path):
    from veilstream.audit.assemble import audit_artefact
    from veilstream.audit.source import Recorded, recorded_runs
    from veilstream.data.fitting import fit_model
    from veilstream.data.sources import read
    from veilstream.data.spec import FitSpec, Recording

    recording = Recording(period_s=300.0, bin="mean", gaps="bridge", noise="drop", eps_m=200.0, min_samples=8)
    model = fit_model(read([str(GEOLIFE / "016")]), FitSpec.of(recording, cycle="none"))
    problem = vs.Problem(model.chain, model.states.distances(), vs.Instantaneous(3.0))
    solution = vs.solve(problem, window=1)
    parts = {"states": model.states, "recording": model.recording}
    policy = vs.save(tmp_path / "p.veil", solution.policy, problem=problem, **parts)
    readings = read([str(GEOLIFE / "016")])
    found = recorded_runs(readings, policy)
    assert found.transitions == 830
    assert all((a == b).all() for a, b in zip(found.sequences, model.runs.sequences, strict=True))
    setting = audit_artefact(policy, Recorded.of(policy, readings), AuditSpec()).policy.settings[1]
    seen = {k: v.cross_entropy.value for k, v in setting.adversaries["predictor"].items()}
    assert setting.broken == 0
    assert seen["truth"] < seen["released"] < seen["nothing"]


def test_figures_are_never_cut_however_narrow_the_terminal(capsys, monkeypatch):
    from veilstream.apps.cli.output import Terminal

    cells = tuple(f"{i}.123 [0.12,0.34]" for i in range(8))
    monkeypatch.setenv("COLUMNS", "80")
    Terminal().table([cells], tuple("abcdefgh"), "At equal mean distortion")
    said = capsys.readouterr().out
    assert all(cell in said for cell in cells)


def test_copies_are_not_told_as_steps_and_empty_columns_not_at_all():
    seen = Measure(Interval(1, 1, 1), 0.5, 0.9, None, None, None, None)
    every = {who: {"released": seen} for who in ("predictor", "filter", "smoother")}
    learned = [Learned("LSTM", 1, Interval(1, 1, 1), (), 0.5)]
    one = Setting("traces", 3, 1200, Interval(1, 1, 1), Interval(0, 0, 0), 0, every, 1.0, learned, copies=40)
    audit = SimpleNamespace(policy=SimpleNamespace(settings=[one]), unit="kWh", against=[])
    exact, network = sheets(audit)
    assert exact.title.endswith("all the data given: 3 runs, 30 steps scored, each released 40 times")
    assert network.head == ("learner", "sees", "nats", "top 1")
    assert [cells for cells, _ in network.rows] == [("LSTM", "1", "0.693 [0.69,0.69]", "50%")]


def test_a_chain_with_too_many_histories_is_followed_on_fewer_copies_or_not_at_all(monkeypatch):
    """A year of a meter has thousands of histories of order 3: that took more than a quarter of an hour, silently."""
    rng = np.random.default_rng(0)
    paths = [rng.integers(6, size=60) for _ in range(15)]
    for order in (1, 2, 3):
        states = len(vs.MarkovChain.fit(paths, 6, order))
        assert states <= settings.histories(paths, order) <= 1.1 * states
    artefact = vs.solve(vs.builtin_problem("grid2x3-toy", vs.Average(weight=2.0))).artefact
    what = settings.Subject(artefact, artefact.problem, AuditSpec(quick=False), tuple(paths))
    data = release(what.artefact.policy, paths, copies=8)
    monkeypatch.setattr(settings, "WORK", 3.0 * 900 * settings.histories(paths, 2) ** 2)
    copies = what.followed(data, "traces")
    assert copies == {1: 8, 2: 3, 3: 0}
    assert what.followed(data, "chain") == {}


def test_nothing_has_no_sign():
    assert pm(Interval(-0.00002, -0.0001, 0.0001)) == "0.0000 ± 0.0001"


def test_a_ratio_to_next_to_nothing_is_not_said():
    """Measured leakage whose interval reaches down to nothing is no denominator."""

    def audited(low, value, high, top1):
        seen = SimpleNamespace(leakage=Interval(value, low, high), adversaries={"filter": {"released": top1}})
        return SimpleNamespace(settings=[seen], distortion=0.5, name="planar-laplace", leakage=None)

    other = audited(0.05, 0.06, 0.07, SimpleNamespace(top1=0.9))
    sure, unsure = (audited(low, 0.01, 0.012, SimpleNamespace(top1=0.8)) for low in (0.009, -0.001))
    assert "leaks 6.0 times as much, and an adversary identifies the place" in _against_words(sure, other, "km", "km")
    told = _against_words(unsure, other, "km", "km")
    assert "leaks 0.06 bits where this policy leaks 0.01, and an adversary" in told
