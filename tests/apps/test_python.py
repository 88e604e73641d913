"""Python first: DataFrames to models, policies, audits and pages, by the code that the command line runs."""

import doctest
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import veilstream as vs
from oracles import recomputed
from pythonkit import PERSON, meter, pd, places
from veilcli import veil

# --- tables in ----------------------------------------------------------------------------------------

STAMPS = pd.to_datetime(PERSON.t_s, unit="s", utc=True)
TABLES = {
    "pandas, aware": lambda: pd.DataFrame(places(STAMPS)),
    "pandas, another zone": lambda: pd.DataFrame(places(STAMPS.tz_convert("Asia/Tokyo"))),
    "pandas, naive": lambda: pd.DataFrame(places(STAMPS.tz_localize(None))),
    "pandas, texts": lambda: pd.DataFrame(places(STAMPS.strftime("%Y-%m-%dT%H:%M:%SZ"))),
    "pandas, index": lambda: pd.DataFrame(places(STAMPS)).set_index("time"),
    "pandas, index without a name": lambda: pd.DataFrame(places(STAMPS)).set_index("time").rename_axis(None),
    "polars, seconds": lambda: pl.DataFrame(places(PERSON.t_s.astype(int))),
    "polars, milliseconds": lambda: pl.DataFrame(places(PERSON.t_s.astype(int) * 1000)),
    "polars, aware": lambda: pl.DataFrame(places(STAMPS.to_numpy("datetime64[us]"))).with_columns(
        pl.col("time").dt.replace_time_zone("UTC")
    ),
    "polars, lazy": lambda: pl.DataFrame(places(PERSON.t_s)).lazy(),
    "a mapping": lambda: places(PERSON.t_s),
}


@pytest.fixture(scope="module")
def from_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("python") / "stream.csv"
    pd.DataFrame(places(STAMPS)).to_csv(path, index=False)
    out = path.with_suffix(".veil")
    told = json.loads(veil("fit", path, "-o", out, "--json").stdout)
    return path, vs.load(out), told


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_a_table_gives_the_model_that_veil_fit_makes_of_its_file(make, from_file):
    _, there, told = from_file
    model = vs.fit(make())
    here = model.artefact
    assert here.chain.transition == recomputed(there.chain.transition) and here.states.names == there.states.names
    assert np.array_equal(here.record.points, there.record.points) and here.recording == there.recording
    assert len(model.states) == told["states"] and model.card.entropy_rate == recomputed(told["entropy_rate"])


def test_a_path_several_paths_and_readings_are_the_same(from_file):
    path, there, _ = from_file
    for data in (path, str(path), [path]):
        assert vs.fit(data).chain.transition == recomputed(there.chain.transition)


def test_a_model_is_the_same_after_its_file(tmp_path, from_file):
    model = vs.fit(places(PERSON.t_s))
    saved = model.save(tmp_path / "new" / "me.veil")
    assert saved.sha256 == model.artefact.sha256 == vs.load(tmp_path / "new" / "me.veil").sha256


def test_people_are_told_apart_and_columns_may_be_named():
    two = pd.concat([meter().assign(who="ann"), meter().assign(who="bob")])
    assert vs.fit(two, n_states=3).streams == 2
    assert vs.fit(two, n_states=3, stream="bob").streams == 1
    odd = meter().rename(columns={"time": "when", "kWh": "used"})
    model = vs.fit(odd, columns={"time": "when", "value": "used"}, unit="kWh", n_states=3)
    assert model.states.unit == "kWh" and model.reading == {"columns": "time=when,value=used", "unit": "kWh"}


def test_a_column_of_times_is_the_time_whatever_its_name_as_in_parquet():
    """And what is no single thing, a list, is no column at all."""
    odd = meter().rename(columns={"time": "measured"})
    utc = odd["measured"].dt.tz_localize(None).to_numpy()
    lists = pl.DataFrame({"measured": utc, "kWh": odd["kWh"].to_numpy()}).with_columns(tags=pl.lit(["a"]))
    for table in (odd, lists):
        model = vs.fit(table, n_states=3)
        assert model.chain.transition == recomputed(vs.fit(meter(), n_states=3).chain.transition)


def test_what_is_missing_is_left_out_and_counted_and_what_is_wrong_is_said_without_its_value():
    gap = meter()
    gap.loc[3, "kWh"] = np.nan
    assert vs.fit(gap, n_states=3).account.count("missing") == 1
    bad = meter().astype({"kWh": object})
    bad.loc[5, "kWh"] = "12.5x"
    with pytest.raises(vs.InputError, match=r"the DataFrame row 5: column 'kWh' must be a number, found '00.0x'"):
        vs.fit(bad)
    with pytest.raises(vs.InputError, match="data must be a DataFrame, a path or a list of paths, found a int"):
        vs.fit(7)
    with pytest.raises(vs.InputError, match="a role of time, lat"):
        vs.fit(meter(), columns={"when": "time"})


# --- solve --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_solve_of_a_model_is_what_veil_solve_prints(from_file, tmp_path):
    path = from_file[0].with_suffix(".veil")
    out = tmp_path / "policy.veil"
    told = json.loads(veil("solve", path, "--avg", "1km", "-o", out, "--json").stdout)
    solved = vs.solve(path, avg="1km")
    assert (solved.leakage, solved.record.error) == recomputed((told["leakage"], told["raw_distortion"]))
    assert vs.solve(vs.fit(from_file[0]), avg=1.0).leakage == recomputed(solved.leakage)
    there, here = vs.load(out), solved.artefact
    assert there.points.coordinates == recomputed(here.points.coordinates)
    assert there.problem.constraint == here.problem.constraint
    assert there.provenance["solution"]["leakage"] == recomputed(here.provenance["solution"]["leakage"])


def test_a_problem_keeps_its_own_constraint():
    problem = vs.builtin_problem("binary", vs.Average(weight=1.0))
    with pytest.raises(vs.InputError, match="a problem has its constraint already; avg is for a model"):
        vs.solve(problem, avg=0.1)
    assert isinstance(vs.curve(problem, weights=[1.0]), list)


# --- audit and report ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_audit_and_report_take_tables(solution, tmp_path):
    found = vs.audit(solution, meter(), copies=1, streams=12, steps=40)
    assert found.stands and "On your recorded data" in found.words
    page = vs.report(solution, meter(), tmp_path / "r.html", points=3, seconds=0, audit="none")
    assert page.private and "PRIVATE" in page.path.read_text() and page.size < 10**6
    with pytest.raises(vs.InputError, match="`data='SOURCE'`, or `shareable=True`"):
        vs.report(solution)


def test_the_name_audit_is_the_verb_and_its_room_can_be_imported():
    code = (
        "import veilstream as vs; f = vs.audit\n"
        "import veilstream.audit.assemble as run\n"
        "from veilstream.audit.spec import AuditSpec\n"
        "assert vs.audit is f and callable(f) and run.audit_artefact is not f and AuditSpec"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- the reference ------------------------------------------------------------------------------------


def test_the_api_reference_is_as_the_docstrings_are():
    import api

    assert api.PAGE.read_text() == api.page(), "run: python tools/api.py"
    named = [name for names in api.GROUPS.values() for name in names]
    assert sorted(named) == sorted(n for n in vs.__all__ if n != "__version__")


def test_help_of_fit_is_a_page_with_an_example():
    import pydoc

    text = pydoc.plain(pydoc.render_doc(vs.fit))
    assert ">>> model = vs.fit(" in text and "n_states" in text and max(map(len, text.splitlines()[4:])) <= 124
    assert doctest.DocTestParser().get_examples(vs.fit.__doc__)
