"""Released DataFrames: of the same make, one draw per step, also as a step of scikit-learn."""

import subprocess
import warnings
from functools import partial

import numpy as np
import polars as pl
import pytest

import veilstream as vs
from pythonkit import HOME, PERSON, meter, pd, places
from veilcli import VEIL
from veilstream.data.readings import from_arrays


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
    out = vs.release(solution, secret, store=tmp_path / "a.db")
    own = [c for c in df.columns if c != "time"]
    assert type(out) is type(df) and [c for c in out.columns if c != "time"] == [*own, "leaked_bits"]
    assert len(out) == len(df)  # a reading a step
    assert list(when(out)) == list(when(df)) and when(out).dtype == when(df).dtype
    assert set(np.unique(out["kWh"])) <= set(solution.artefact.shown.coordinates[:, 0])
    assert (np.diff(out["leaked_bits"]) >= 0).all()


def test_files_wide_tables_series_and_other_indices_are_released_too(solution, tmp_path):
    csv = tmp_path / "ann.csv"
    meter(60).to_csv(csv, index=False)
    out = vs.release(solution, csv, store=False)
    assert out.columns == ["time", "stream", "value", "leaked_bits"] and out["stream"].unique().to_list() == ["ann"]
    wide = pd.DataFrame({"time": meter(60)["time"], "ann": HOME.points[:60, 0], "bob": HOME.points[60:120, 0]})
    with pytest.raises(vs.InputError, match="is each of ann, bob a stream of its own, or which is the value"):
        vs.release(solution, wide, store=False)
    out = vs.release(solution, wide, store=False, columns="value=*")
    assert list(out.columns) == ["time", "stream", "value", "leaked_bits"] and len(out) == 120
    series = meter(60).set_index("time")["kWh"]
    out = vs.release(solution, series, store=False)
    assert out.index.equals(series.index) and list(out.columns) == ["kWh", "leaked_bits"]
    both = pd.concat({"ann": meter(60), "bob": meter(60)}, names=["who", "row"])
    out = vs.release(solution, both.droplevel("row").set_index("time", append=True), store=False)
    assert sorted(set(out["who"])) == ["ann", "bob"] and len(out) == 120


def test_one_draw_per_step_ever_and_the_meter_goes_on(solution, tmp_path):
    first = vs.release(solution, meter(400), store=tmp_path / "a.db")
    again = vs.release(solution, meter(), store=tmp_path / "a.db")
    assert again.iloc[:400].reset_index(drop=True).equals(first)
    assert again["leaked_bits"].iloc[400] >= first["leaked_bits"].iloc[-1]


@pytest.mark.slow
def test_python_and_the_command_line_share_the_store_of_a_policy_file(solution, tmp_path):
    policy, csv = tmp_path / "p.veil", tmp_path / "m.csv"
    solution.save(policy)
    meter().to_csv(csv, index=False)
    here = vs.release(policy, meter(), stream="m")  # the store beside it, as veil release; a file is called by its name
    run = [*VEIL, "release", policy, csv]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [float(line.split(",")[2]) for line in lines[1:]] == here["kWh"].tolist()


def test_without_a_store_a_second_call_draws_again_which_is_warned_of(solution):
    with pytest.warns(UserWarning, match="a second call draws again"):
        one = vs.release(solution, meter())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two = vs.release(solution, meter(), store=False)
    assert not one["kWh"].equals(two["kWh"])


def test_a_limit_that_nobody_can_keep_is_said_in_its_unit():
    with pytest.raises(vs.InputError, match=r"mean error below 0\.\d+ kWh, 0\.001 kWh was asked for; allow more"):
        vs.solve(vs.fit(meter(), n_states=3), avg="1Wh")


def test_readings_are_released_as_their_table_is(solution):
    """Readings have columns too, and are no DataFrame."""
    n = 50
    readings = from_arrays(HOME.t_s[:n], HOME.points[:n], "kWh")
    with pytest.warns(UserWarning, match="repeatable"):
        found, table = (vs.release(solution, data, store=False, seed=3) for data in (readings, meter(n)))
    assert found["value"].to_list() == table["kWh"].to_list()


def test_several_readings_of_a_step_give_one_row_at_its_grid_time(solution, tmp_path):
    df = pd.concat([meter(50), meter(50).assign(time=lambda d: d["time"] + pd.Timedelta("7min"), kWh=1.9)])
    out = vs.release(solution, df, store=tmp_path / "a.db")
    assert len(out) == 50 and out["time"].equals(meter(50)["time"])


def test_readings_of_another_kind_and_a_model_without_a_policy_are_refused(solution, tmp_path):
    with pytest.raises(vs.InputError, match="different state spaces"):
        vs.release(solution, places(PERSON.t_s), store=False)
    with pytest.raises(vs.InputError, match="a model without a policy"):
        vs.release(vs.fit(meter(), n_states=3), meter(), store=False)


def test_late_steps_are_refused_and_counted(solution, tmp_path):
    vs.release(solution, meter().iloc[500:], store=tmp_path / "a.db")
    with pytest.warns(UserWarning, match="refused 500 readings of the DataFrame: 500 late"):
        out = vs.release(solution, meter(), store=tmp_path / "a.db")
    assert len(out) == len(HOME.path) - 500


def test_it_is_a_step_of_a_pipeline(solution, tmp_path):
    """Every clone of the step shares the store, so a step of time is drawn once."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    released = FunctionTransformer(partial(vs.release, solution, store=tmp_path / "a.db"))
    pipeline = make_pipeline(released, FunctionTransformer(lambda d: d[["kWh"]]))
    out = pipeline.fit_transform(meter())
    assert out.shape == (len(HOME.path), 1) and out.equals(clone(pipeline).fit_transform(meter()))
