"""One meaning across doors: the same trips as files, as one table, as a DataFrame or with a column make one model."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import veilstream as vs
from oracles import recomputed
from veilcli import veil
from veilstream.data.readings import Account, Readings
from veilstream.data.steps import clean
from veilstream.errors import Caution

GPX = '<gpx version="1.1" creator="x" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{}</trkseg></trk></gpx>'
POINT = '<trkpt lat="{:.6f}" lon="{:.6f}"><time>{}</time></trkpt>'


def trips(n=40, seed=0):
    """n trips of an hour, some hours apart, between a few places; one pauses for twenty minutes, one for two hours."""
    rng, found, t = np.random.default_rng(seed), [], 1_704_067_200
    places = np.array([[40.0, 116.0], [40.03, 116.02], [40.01, 116.05]])
    for k in range(n):
        a, b = places[rng.choice(3, 2, replace=False)]
        part = np.linspace(0, 1, 40)[:, None]
        where = np.concatenate([np.tile(a, (10, 1)), a + part * (b - a), np.tile(b, (10, 1))])
        where += rng.normal(scale=2e-4, size=where.shape)
        stamps = t + 60 * np.arange(len(where))
        stamps[30:] += {3: 1200, 7: 7200}.get(k, 0)
        found.append((stamps, where.round(6)))
        t = int(stamps[-1]) + int(rng.integers(2, 9)) * 3600
    return found


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    folder, all_of = tmp_path_factory.mktemp("doors"), trips()
    (folder / "gpx").mkdir()
    for k, (stamps, where) in enumerate(all_of):
        times = [np.datetime64(int(t), "s").item().isoformat() + "Z" for t in stamps]
        rows = "".join(POINT.format(*x, t) for x, t in zip(where, times, strict=True))
        (folder / "gpx" / f"{k:02d}.gpx").write_text(GPX.format(rows))
    t, x = (np.concatenate(parts) for parts in zip(*all_of, strict=True))
    trip = np.repeat(np.arange(len(all_of)), [len(s) for s, _ in all_of])
    table = pd.DataFrame({"time": pd.to_datetime(t, unit="s", utc=True), "lat": x[:, 0], "lon": x[:, 1]})
    table.to_csv(folder / "me.csv", index=False)
    ways = {
        "files": str(folder / "gpx"),
        "csv": folder / "me.csv",
        "frame": table,
        "polars": pl.DataFrame(table.to_dict("list")),
    }
    return {name: vs.fit(data) for name, data in ways.items()}, vs.fit(table.assign(trip=trip))


def test_the_same_trips_make_the_same_model_whatever_door_they_came_through(doors):
    models, _ = doors
    files = models["files"]
    assert files.traces == 41 and files.later.units == 14  # the pause of two hours makes two of one
    for model in models.values():
        assert (model.traces, model.later.units) == (41, 14)
        assert model.states.coordinates == recomputed(files.states.coordinates)
        assert model.chain.transition == recomputed(files.chain.transition)
        assert model.later.loss.value == recomputed(files.later.loss.value)
    said = {e.step: e for e in files.account.entries}
    assert said["traces"].count == 41 and said["traces"].note == "cut where no reading came for 1 h"


def test_a_column_tells_traces_apart(doors):
    _, model = doors
    assert (model.traces, model.later.units) == (40, 14)
    assert {e.step: e.note for e in model.account.entries}["traces"] == "as a column tells them apart"


def test_trips_are_cut_by_time_and_values_are_one_trace_a_stream():
    hour = 3_600_000_000
    t = np.array([0, 1, 2, 5, 6, 0, 1], np.int64) * hour // 2  # of "a" in two files, and of "b"
    columns = {"stream": np.array([0] * 5 + [1] * 2, np.uint32), "trace": np.array([1, 1, 0, 0, 0, 2, 3], np.uint32)}
    places = {"lat": np.linspace(0, 0.1, 7), "lon": np.zeros(7)}

    def cut(kind, values, **known):
        frame = pl.DataFrame({**columns, "t": t, **values})
        return clean(Readings(frame, ("a", "b"), kind, "", Account(), **known), 1e9, 3600.0).frame["trace"].to_list()

    assert cut("position", places) == [0, 0, 0, 1, 1, 2, 2]
    assert cut("value", {"value": places["lat"]}) == [0, 0, 0, 0, 0, 1, 1]
    assert cut("position", places, traced=True) == cut("position", places, stepped=True) == [1, 1, 0, 0, 0, 2, 3]


@pytest.mark.parametrize("columns", [None, {"time": "time"}])
def test_columns_are_streams_only_where_they_look_like_it_or_are_said_to(columns):
    t = pd.date_range("2024-01-01", periods=60, freq="30min", tz="UTC")
    values = np.random.default_rng(0).integers(0, 3, (60, 2)).astype(float)

    def streams(*names, told=columns):
        table = pd.DataFrame({"time": t, names[0]: values[:, 0], names[1]: values[:, 1]})
        return vs.fit(table, columns=told, n_states=3).streams

    with pytest.raises(vs.InputError, match=r"is each of foo, bar a stream of its own, or which is the value\? say "):
        streams("foo", "bar")
    assert streams("foo", "bar", told="value=*") == streams("MAC03", "MAC12") == streams("a kWh", "b kWh") == 2
    assert streams("foo", "bar", told="value=foo") == 1


def test_what_a_script_must_know_it_is_warned_of():
    stamps, where = (np.concatenate(parts) for parts in zip(*trips(6), strict=True))
    table = {"time": stamps, "lat": where[:, 0], "lon": where[:, 1]}
    with pytest.warns(Caution, match="long-run law differs from the visits"):
        model = vs.fit(table)
    with pytest.warns(Caution, match="thin data"):
        solution = vs.solve(model, avg="500m", window=1)
    assert f"{solution.record.bits:.4f} bits per step on your recorded data" in repr(solution)
    assert f"long run {solution.leakage:.4f}" in repr(solution)
    with pytest.raises(vs.InputError, match="the policy comes first"):
        vs.release(pd.DataFrame(table), solution)


def test_the_command_line_says_it_once(tmp_path):
    stamps, where = (np.concatenate(parts) for parts in zip(*trips(6), strict=True))
    pd.DataFrame({"time": stamps, "lat": where[:, 0], "lon": where[:, 1]}).to_csv(tmp_path / "a.csv", index=False)
    done = veil("fit", tmp_path / "a.csv", "-o", tmp_path / "a.veil")
    assert done.returncode == 0 and done.stdout.count("law differs from") == 1 and not done.stderr
