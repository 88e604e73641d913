"""Python first: DataFrames to models, audits, pages and released DataFrames, by the code that the command line runs."""

import doctest
import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest

import veilstream as vs
from veilcli import VEIL, veil
from veilstream import shown
from veilstream.data.readings import from_arrays
from veilstream.data.synthetic import city, household

pd = pytest.importorskip("pandas")
PERSON, HOME = city(1200), household(900)
LIMIT = "0.2kWh"


def places(times):
    lat, lon = PERSON.points.T
    return {"time": times, "lat": lat, "lon": lon}


def meter(n=None):
    return pd.DataFrame({"time": pd.to_datetime(HOME.t_s[:n], unit="s", utc=True), "kWh": HOME.points[:n, 0]})


@pytest.fixture(scope="module")
def solution():
    return vs.solve(vs.fit(meter(), n_states=3), avg=LIMIT)


# --- tables in --------------------------------------------------------------------------------------------

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
    assert np.array_equal(here.chain.transition, there.chain.transition) and here.states.names == there.states.names
    assert np.array_equal(here.record.points, there.record.points) and here.recording == there.recording
    assert len(model.states) == told["states"] and model.card.entropy_rate == told["entropy_rate"]


def test_a_path_several_paths_and_readings_are_the_same(from_file):
    path, there, _ = from_file
    for data in (path, str(path), [path]):
        assert np.array_equal(vs.fit(data).chain.transition, there.chain.transition)


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
        assert np.array_equal(model.chain.transition, vs.fit(meter(), n_states=3).chain.transition)


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
    with pytest.raises(vs.InputError, match="a role must be one of"):
        vs.fit(meter(), columns={"when": "time"})


# --- solve ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_solve_of_a_model_is_what_veil_solve_prints(from_file, tmp_path):
    path = from_file[0].with_suffix(".veil")
    out = tmp_path / "policy.veil"
    told = json.loads(veil("solve", path, "--avg", "1km", "-o", out, "--json").stdout)
    solved = vs.solve(path, avg="1km")
    assert solved.leakage == told["leakage"] and solved.record.felt == told["raw_distortion"]
    assert vs.solve(vs.fit(from_file[0]), avg=1.0).leakage == solved.leakage
    there, here = vs.load(out), solved.artefact
    assert (
        np.array_equal(there.points.coordinates, here.points.coordinates)
        and there.problem.constraint == here.problem.constraint
    )
    assert there.provenance["solution"]["leakage"] == here.provenance["solution"]["leakage"]


def test_a_problem_keeps_its_own_constraint():
    problem = vs.builtin_problem("binary", vs.Average(weight=1.0))
    with pytest.raises(vs.InputError, match="a problem has its constraint already; avg is for a model"):
        vs.solve(problem, avg=0.1)
    assert isinstance(vs.curve(problem, weights=[1.0]), list)


# --- release ----------------------------------------------------------------------------------------------


def when(table):
    index = getattr(table, "index", None)
    return index if getattr(index, "name", None) == "time" else table["time"]


SHAPES = {
    "pandas": meter,
    "pandas, index": lambda: meter().set_index("time"),
    "pandas, local time": lambda: meter().assign(time=lambda d: d["time"].dt.tz_convert("Europe/Madrid")),
    "pandas, seconds": lambda: meter().assign(time=HOME.t_s.astype(int)),
    "polars": lambda: pl.DataFrame({"time": HOME.t_s.astype(int), "kWh": HOME.points[:, 0]}),
    "polars, dates": lambda: pl.DataFrame(
        {"time": HOME.t_s.astype("datetime64[s]").astype("datetime64[us]"), "kWh": HOME.points[:, 0]}
    ),
}


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
def test_a_released_table_is_of_the_same_make_with_public_columns_only(make, solution, tmp_path):
    df = make()
    secret = df.assign(diary="x") if hasattr(df, "assign") else df.with_columns(diary=pl.lit("x"))
    out = vs.release(secret, solution, store=tmp_path / "a.db")
    own = [c for c in df.columns if c != "time"]
    assert type(out) is type(df) and [c for c in out.columns if c != "time"] == [*own, "leaked_bits"]
    assert len(out) == len(df)  # a reading a step
    assert list(when(out)) == list(when(df)) and when(out).dtype == when(df).dtype
    assert set(np.unique(out["kWh"])) <= set(solution.artefact.shown.coordinates[:, 0])
    assert (np.diff(out["leaked_bits"]) >= 0).all()


def test_files_wide_tables_series_and_other_indices_are_released_too(solution, tmp_path):
    csv = tmp_path / "ann.csv"
    meter(60).to_csv(csv, index=False)
    out = vs.release(csv, solution, store=False)
    assert out.columns == ["time", "stream", "value", "leaked_bits"] and out["stream"].unique().to_list() == ["ann"]
    wide = pd.DataFrame({"time": meter(60)["time"], "ann": HOME.points[:60, 0], "bob": HOME.points[60:120, 0]})
    out = vs.release(wide, solution, store=False)
    assert list(out.columns) == ["time", "stream", "value", "leaked_bits"] and len(out) == 120
    series = meter(60).set_index("time")["kWh"]
    out = vs.release(series, solution, store=False)
    assert out.index.equals(series.index) and list(out.columns) == ["kWh", "leaked_bits"]
    both = pd.concat({"ann": meter(60), "bob": meter(60)}, names=["who", "row"])
    out = vs.release(both.droplevel("row").set_index("time", append=True), solution, store=False)
    assert sorted(set(out["who"])) == ["ann", "bob"] and len(out) == 120


def test_one_draw_per_step_ever_and_the_meter_goes_on(solution, tmp_path):
    first = vs.release(meter(400), solution, store=tmp_path / "a.db")
    again = vs.release(meter(), solution, store=tmp_path / "a.db")
    assert again.iloc[:400].reset_index(drop=True).equals(first)
    assert again["leaked_bits"].iloc[400] >= first["leaked_bits"].iloc[-1]


@pytest.mark.slow
def test_python_and_the_command_line_share_the_store_of_a_policy_file(solution, tmp_path):
    policy, csv = tmp_path / "p.veil", tmp_path / "m.csv"
    solution.save(policy)
    meter().to_csv(csv, index=False)
    here = vs.release(meter(), policy, stream="m")  # the store beside it, as veil release; a file is called by its name
    run = [*VEIL, "release", policy, csv]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [float(line.split(",")[2]) for line in lines[1:]] == here["kWh"].tolist()


def test_without_a_store_a_second_call_draws_again_which_is_warned_of(solution):
    with pytest.warns(UserWarning, match="a second call draws again"):
        one = vs.release(meter(), solution)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two = vs.release(meter(), solution, store=False)
    assert not one["kWh"].equals(two["kWh"])


def test_a_limit_that_nobody_can_keep_is_said_in_its_unit():
    with pytest.raises(vs.InputError, match=r"mean distortion below 0\.\d+ kWh, 0\.001 kWh was asked for; allow more"):
        vs.solve(vs.fit(meter(), n_states=3), avg="1Wh")


def test_readings_are_released_as_their_table_is(solution):
    """Readings have columns too, and are no DataFrame."""
    n = 50
    readings = from_arrays(HOME.t_s[:n], HOME.points[:n], "kWh")
    with pytest.warns(UserWarning, match="repeatable"):
        found, table = (vs.release(data, solution, store=False, seed=3) for data in (readings, meter(n)))
    assert found["value"].to_list() == table["kWh"].to_list()


def test_several_readings_of_a_step_give_one_row_at_its_grid_time(solution, tmp_path):
    df = pd.concat([meter(50), meter(50).assign(time=lambda d: d["time"] + pd.Timedelta("7min"), kWh=1.9)])
    out = vs.release(df, solution, store=tmp_path / "a.db")
    assert len(out) == 50 and out["time"].equals(meter(50)["time"])


def test_readings_of_another_kind_and_a_model_without_a_policy_are_refused(solution, tmp_path):
    with pytest.raises(vs.InputError, match="different state spaces"):
        vs.release(places(PERSON.t_s), solution, store=False)
    with pytest.raises(vs.InputError, match="a model without a policy"):
        vs.release(meter(), vs.fit(meter(), n_states=3), store=False)


def test_late_steps_are_refused_and_counted(solution, tmp_path):
    vs.release(meter().iloc[500:], solution, store=tmp_path / "a.db")
    with pytest.warns(UserWarning, match="refused 500 readings of the DataFrame: 500 late"):
        out = vs.release(meter(), solution, store=tmp_path / "a.db")
    assert len(out) == len(HOME.path) - 500


# --- audit and report ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_audit_and_report_take_tables(solution, tmp_path):
    found = vs.audit(solution, meter(), copies=1, streams=12, steps=40)
    assert found.check.stands and "the recorded streams" in found.words
    page = vs.report(solution, meter(), tmp_path / "r.html", points=3, seconds=0, audit="none")
    assert page.private and "PRIVATE" in page.path.read_text() and page.size < 10**6
    with pytest.raises(vs.InputError, match="`data='SOURCE'`, or `shareable=True`"):
        vs.report(solution)


def test_the_name_audit_is_the_verb_and_its_room_can_be_imported():
    code = (
        "import veilstream as vs; f = vs.audit\n"
        "import veilstream.audit.run as run\n"
        "from veilstream.audit import Options\n"
        "assert vs.audit is f and callable(f) and run.audit is not f and Options"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- what a notebook shows ----------------------------------------------------------------------------------


def test_everything_is_short_and_escaped(solution):
    home = vs.fit(pd.concat([meter(60).assign(stream="<b>ann</b>")]), n_states=3)
    things = [home, home.artefact, solution, solution.artefact, vs.curve("builtin:binary", weights=[1.0, 2.0])]
    for thing in things:
        assert len(repr(thing)) < 130 and "\n" not in repr(thing)
        page = thing._repr_html_()
        assert page.startswith("<div>") and "<b>ann" not in page and len(page) < 6000
    assert "&lt;b&gt;ann" in home._repr_html_()


@pytest.mark.slow
def test_plots_are_figures_that_show_themselves(solution):
    figures = [
        vs.fit(meter(), n_states=3).plot(),
        solution.plot(),
        vs.curve("builtin:binary", weights=[1.0, 4.0]).plot(),
    ]
    for figure in figures:
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_plot_says_what_to_install(monkeypatch, solution):
    for name in [m for m in sys.modules if m.startswith(("matplotlib", "veilstream.apps.report"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(vs.InputError, match=r"`plot` needs matplotlib; .* pip install 'veilstream\[plot\]'"):
        solution.plot()


def test_progress_is_silent_outside_a_notebook_and_goes_to_whom_it_is_told(capsys):
    told = []
    vs.solve("builtin:binary", weight=1.0)
    vs.solve("builtin:binary", weight=1.0, progress=lambda done, what: told.append(done))
    assert told and capsys.readouterr() == ("", "")


def test_a_bar_in_a_notebook_comes_after_a_second_and_is_cleared(monkeypatch):
    drawn = []

    class Handle:
        def update(self, bar):
            drawn.append(bar._repr_html_())

    class Display:
        @staticmethod
        def display(bar, display_id):
            drawn.append(bar._repr_html_())
            return Handle()

    clock = iter([0.0, 0.5, 1.5, 1.6, 2.0])
    monkeypatch.setitem(sys.modules, "IPython.display", Display)
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(clock))
    with shown.notebook_bar("<solving>") as tell:
        for done in (0.1, 0.3, 0.4, 0.6):
            tell(done, "sweeps")
    assert [("0.300" in d, "0.600" in d) for d in drawn] == [(True, False), (False, True), (False, False)]
    assert drawn[0].startswith("&lt;solving&gt;") and drawn[-1] == ""


def test_importing_the_package_loads_nothing_heavy():
    code = "import veilstream as vs, sys; vs.solve; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "polars", "pandas", "matplotlib", "IPython", "typer"} & set(loaded)


# --- the transformer ------------------------------------------------------------------------------------------


@pytest.fixture
def step():
    return vs.ReleaseTransformer(avg=LIMIT, fit_options={"n_states": 3})


def test_the_transformer_is_scikit_learns(step):
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    assert clone(step).get_params() == step.get_params() and step.get_params()["avg"] == LIMIT
    total = make_pipeline(step, FunctionTransformer(lambda d: d[["kWh"]]))
    out = total.fit_transform(meter())
    assert out.shape == (len(HOME.path), 1)
    assert step.get_feature_names_out().tolist() == ["time", "kWh", "leaked_bits"]


def test_a_row_for_every_row_in_its_order_and_one_draw_per_step(step):
    shuffled = meter(200).sample(frac=1.0, random_state=0)
    double = pd.concat([shuffled, shuffled.iloc[:20]])
    out = step.fit(meter()).transform(double)
    assert out["time"].tolist() == double["time"].tolist()
    assert out["kWh"].iloc[200:].tolist() == out["kWh"].iloc[:20].tolist()
    assert out.equals(step.transform(double))


@pytest.mark.slow
def test_what_is_not_honest_is_refused(step, tmp_path):
    step.fit(meter())
    step.transform(meter().iloc[500:])
    with pytest.raises(vs.InputError, match="500 rows lie before steps that are released already"):
        step.transform(meter())
    with pytest.raises(vs.InputError, match="cannot be copied"):
        pickle.dumps(step)
    with pytest.raises(vs.InputError, match="X must be a DataFrame"):
        step.transform(np.zeros((3, 2)))
    gap = meter()
    gap.loc[3, "kWh"] = np.nan
    with pytest.raises(vs.InputError, match="every row must be one reading"):
        step.fit(meter()).transform(gap)


@pytest.mark.slow
def test_with_a_store_every_clone_gives_the_same_releases(step, tmp_path):
    from sklearn.base import clone

    step.set_params(store=tmp_path / "a.db")
    one = step.fit(meter()).transform(meter())
    assert one.equals(clone(step).fit(meter()).transform(meter()))
    assert pickle.loads(pickle.dumps(step)).transform(meter()).equals(one)


# --- the reference ----------------------------------------------------------------------------------------------


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
