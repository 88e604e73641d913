"""StateSpace: one total encoding; and the ways to find the states, against plain oracles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilstream.data import clusters as state_search
from veilstream.data.bins import value_bins
from veilstream.data.clusters import find_stops, given_places, grid_cells
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.model.distortion import haversine

CENTRE = np.array([-47.0, -125.0])


def places(n=12, seed=0, spread=0.2):
    rng = np.random.default_rng(seed)
    coordinates = np.clip(CENTRE + rng.normal(scale=spread, size=(n, 2)), -89, 179)
    return StateSpace("places", np.maximum(coordinates, [-89, -179]), [f"p{i}" for i in range(n)], "km")


latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(latitudes, longitudes), min_size=1, max_size=6))
def test_encode_is_total_nearest_and_the_same_alone_or_together(readings):
    states = places(spread=30)
    points = np.array(readings)
    together = states.encode(points)
    assert ((together >= 0) & (together < len(states))).all()
    assert together.tolist() == [int(states.encode(p)[0]) for p in points]
    far = states.distances_from(points)
    assert (far[np.arange(len(points)), together] <= far.min(1) + 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_every_value_has_a_bin_and_bins_are_ordered(values):
    states, _ = value_bins(np.arange(100.0), 5, unit="kWh")
    x = states.encode(np.sort(values))
    assert (np.diff(x) >= 0).all()
    assert ((x >= 0) & (x < 5)).all()


def test_decode_then_encode_is_the_identity():
    bins = value_bins(np.random.default_rng(0).gamma(1, size=500), 7)[0]
    for states in (places(), bins, grid_cells(places().coordinates, 500)):
        assert states.encode(states.decode(np.arange(len(states)))).tolist() == list(range(len(states)))


def test_distances_are_a_metric_in_the_unit():
    states = places()
    d = states.distances()
    np.testing.assert_allclose(d, haversine(states.coordinates), atol=1e-12)
    np.testing.assert_allclose(d, d.T)
    assert (d[:, None] <= d[:, :, None] + d.T[None] + 1e-9).all()
    x = np.array([3, 1, 4])
    np.testing.assert_allclose(states.distance_to(states.coordinates[:3], x), d[np.arange(3), x], atol=1e-9)
    levels, _ = value_bins([0.0, 1, 2, 3], edges=[0.5, 1.5, 2.5], unit="kWh")
    np.testing.assert_allclose(levels.distances()[0], [0, 1, 2, 3])
    assert levels.unit == "kWh"


def test_infinite_readings_are_refused_by_encode():
    with pytest.raises(InputError, match="finite"):
        places().encode([np.nan, 1.0])


# --- stops -----------------------------------------------------------------------------------------------


def crowd(n_places, per_place, noise, seed=0):
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(n_places) / n_places
    centres = CENTRE + 0.05 * np.stack([np.cos(angle), np.sin(angle)], 1)
    points = np.repeat(centres, per_place, 0) + rng.normal(scale=3e-4, size=(n_places * per_place, 2))
    return np.concatenate([points, CENTRE + rng.uniform(-0.3, 0.3, size=(noise, 2))]), centres


def plain_dbscan(points, eps_km, min_samples):
    """The definition, word for word: core points, chained; borders join the first cluster that reaches them."""
    near = haversine(points) <= eps_km
    core = near.sum(1) >= min_samples
    label = np.full(len(points), -1)
    n = 0
    for i in np.flatnonzero(core):
        if label[i] >= 0:
            continue
        todo = [i]
        label[i] = n
        while todo:
            k = todo.pop()
            if core[k]:
                new = np.flatnonzero(near[k] & (label < 0))
                label[new] = n
                todo += new.tolist()
        n += 1
    return label


def test_stops_are_dbscan_by_definition():
    points, centres = crowd(6, 25, 40)
    stops = find_stops(points, 200, 8)
    expected = plain_dbscan(points, 0.2, 8)
    assert ((stops.labels < 0) == (expected < 0)).all()
    assert len(set(zip(stops.labels, expected, strict=True))) == len(set(expected))  # the same parts, however numbered
    firsts = [int(np.flatnonzero(stops.labels == k)[0]) for k in range(6)]
    assert firsts == sorted(firsts)  # numbered as they are first visited
    assert len(stops.states) == 6
    assert haversine(centres, stops.states.coordinates).min(1).max() < 0.03


def test_cells_give_the_stops_of_the_full_run(monkeypatch):
    points, _ = crowd(6, 300, 200, seed=3)
    full = find_stops(points, 200, 30)
    monkeypatch.setattr(state_search, "FULL_DBSCAN", 500)
    cells = find_stops(points, 200, 30)
    assert "cells" in cells.note
    assert len(cells.states) == len(full.states) == 6
    assert (cells.labels == full.labels).mean() > 0.99
    assert haversine(full.states.coordinates, cells.states.coordinates).min(1).max() < 0.01


def test_the_radius_is_found_for_a_wanted_number():
    points, _ = crowd(6, 25, 0)
    found = find_stops(points, 40, 8, n_states=6)
    assert len(found.states) == 6
    with pytest.raises(InputError, match=r"no radius gives 50 stops .*m gives"):
        find_stops(points, 200, 8, n_states=50)
    with pytest.raises(InputError, match="a chain needs 2"):
        find_stops(points, 200, 10_000)


def test_stops_at_the_date_line():
    rng = np.random.default_rng(0)
    lon = (180 + rng.normal(scale=3e-4, size=50) + 180) % 360 - 180
    west = np.stack([rng.normal(scale=3e-4, size=50), lon], 1)
    stops = find_stops(np.concatenate([west, west + np.array([1.0, 0.0])]), 200, 8)
    assert len(stops.states) == 2
    assert np.abs(np.abs(stops.states.coordinates[:, 1]) - 180).max() < 1e-3


# --- grid, bins, places ----------------------------------------------------------------------------------


def test_grid_cells_have_the_size_asked_for():
    rng = np.random.default_rng(0)
    points = CENTRE + rng.uniform(-0.05, 0.05, size=(3000, 2))
    states = grid_cells(points, 1000)
    offset = states.distance_to(points, states.encode(points))
    assert offset.max() <= np.sqrt(0.5) + 0.01
    d = states.distances()
    assert np.partition(d + 10 * np.eye(len(d)), 0, axis=1)[:, 0] == pytest.approx(1.0, abs=0.01)
    with pytest.raises(InputError, match="make the cells larger"):
        grid_cells(CENTRE + rng.uniform(-1, 1, size=(9000, 2)), 100)


def test_quantile_bins_hold_equal_counts_and_ties_are_said():
    values = np.random.default_rng(0).gamma(1, size=8000)
    states, _ = value_bins(values, 8, unit="kWh")
    assert np.bincount(states.encode(values)) == pytest.approx(np.full(8, 1000), abs=2)
    assert states.names[0].endswith("kWh")
    zeros = np.concatenate([np.zeros(900), np.arange(1.0, 101)])
    heavy, _ = value_bins(zeros, 8)
    assert np.bincount(heavy.encode(zeros))[0] == 900  # equal values share one bin, the others share the rest
    assert np.bincount(heavy.encode(zeros))[1:] == pytest.approx(np.full(7, 100 / 7), abs=1)
    few, note = value_bins([0.0, 0, 1, 1, 2, 2], 8)
    assert len(few) == 3
    assert "3 after joining equal values" in note


def test_width_bins():
    states, _ = value_bins([0.05, 0.15, 0.31, 0.9], width=0.1, unit="kWh")
    np.testing.assert_allclose(np.round(states.edges / 0.1), states.edges / 0.1)
    assert states.encode([0.05, 0.15, 0.31, 0.9]).tolist() == list(range(len(states)))
    with pytest.raises(InputError, match="one bin"):
        value_bins([1.0, 1.0, 1.0], 4)
    with pytest.raises(InputError, match="make it larger"):
        value_bins([0.0, 1e9], width=1e-3)


def test_given_places(tmp_path):
    path = tmp_path / "zones.csv"
    path.write_text("name,lat,lon\nhome,1,2\nwork,3,4\n")
    assert given_places(path).names == ("home", "work")
    for text, says in (
        ("name,lat\nhome,1\n", "line 1: the header"),
        ("name,lat,lon\nhome,1,2\nhome,3,4\n", "line 3: the place 'home' is there twice"),
        ("name,lat,lon\nhome,1,2\nwork,x,4\n", "line 3: lat and lon must be numbers"),
        ("name,lat,lon\nhome,1,2\nwork,91,4\n", "line 3: latitude must be within -90..90"),
        ("name,lat,lon\nhome,1,2\n", "at least 2"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=says):
            given_places(path)


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"kind": "blobs"}, "must be one of"),
        ({"coordinates": [[1, 2, 3]]}, "coordinates"),
        ({"coordinates": [[91.0, 0.0]], "names": ["a"]}, "outside latitude"),
        ({"coordinates": [[np.nan, 0.0]], "names": ["a"]}, "finite"),
        ({"names": ["a", "a"]}, "distinct names"),
        ({"names": ["a", "b\x1b[31m"]}, "printable"),
        ({"kind": "bins", "coordinates": [[1.0], [2.0]], "edges": [3.0, 4.0]}, "inner edges"),
    ],
)
def test_a_state_space_is_valid_or_does_not_exist(kwargs, says):
    base = {"kind": "places", "coordinates": [[1.0, 2.0], [3.0, 4.0]], "names": ["a", "b"], "unit": "km"}
    with pytest.raises(InputError, match=says):
        StateSpace(**{**base, **kwargs})
