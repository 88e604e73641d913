"""Stops and cells: every reading has a state near it, against plain oracles."""

from itertools import pairwise

import numpy as np
import pytest

from oracles import recomputed
from veilstream.data import clusters as cover
from veilstream.data.clusters import METRES_PER_DEGREE, cells, find_stops
from veilstream.data.fitting import fit_model
from veilstream.data.readings import from_arrays
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError

KM = 1000 / METRES_PER_DEGREE  # degrees of latitude


def traveller(trips=12, seed=0):
    """Half an hour or more at each end of a road of 20 km, 5 minutes a step, and the road between."""
    rng = np.random.default_rng(seed)
    along = []
    for start, end in pairwise(np.resize([0.0, 20.0], trips)):
        road = np.sort(rng.uniform(1, 19, 6))
        along += [start] * int(rng.integers(6, 30)) + (road if start < end else road[::-1]).tolist()
    points = np.array(along)[:, None] * [KM, 0] + rng.normal(scale=0.03 * KM, size=(len(along), 2))
    return points + np.array([10, 20])


def away_km(points, states):
    return states.distance_to(points, states.encode(points))


def test_a_traveller_is_near_her_states_on_the_road_too():
    points = traveller()
    alone = find_stops(points, 200, 8)
    found = find_stops(points, 200, 8, covering=(1000, 1000))
    names = found.states.names
    assert len(alone.states) == 2
    assert found.states.kind == "stops and cells"
    assert found.states.coordinates[:2] == recomputed(alone.states.coordinates)
    assert names[:3] == ("stop 0", "stop 1", "cell 2")
    np.testing.assert_array_equal(found.labels, alone.labels)
    assert (away_km(points, alone.states) <= 1).mean() < 0.9
    share = (away_km(points, found.states) <= 1).mean()
    assert share >= 0.95
    assert f"{share:.1%}" in found.note


def test_a_coarser_resolution_gives_fewer_states():
    points = traveller()
    sizes = [len(find_stops(points, 200, 8, covering=(r, r)).states) for r in (500.0, 1000.0, 2000.0, 5000.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_cells_are_the_means_of_their_readings_and_rare_ones_join_wider_cells():
    one, two = np.array([[10.001, 20.001], [10.001, 20.003], [10.002, 20.002]]), np.array([[10.011, 20.001]])
    found = cells(np.concatenate([two, one]), 500, 1)
    np.testing.assert_allclose(found, [two[0], one.mean(0)])  # in order of appearance
    joined = cells(np.concatenate([one, two, two + 0.02]), 500, 2)
    np.testing.assert_allclose(joined[0], one.mean(0))
    np.testing.assert_allclose(joined[1], two[0] + 0.01)  # two lonely readings, together in a wider cell
    assert len(cells(two, 500, 2)) == 0  # left over: whatever is nearest


def test_the_grid_has_a_public_origin():
    """Another person's readings do not move the cells: readings of one cell stay in one, whoever else is there."""
    rng = np.random.default_rng(0)
    cell = np.floor(np.array([10.0, 20.0]) / KM) * KM + KM / 2  # columns are counted at the row's own latitude
    points = cell + rng.uniform(-0.4, 0.4, (50, 2)) * KM * [1, 0.01]
    alone = cells(points, 1000, 1)
    with_others = cells(np.concatenate([points, points + np.array([3, 5]), points - np.array([7, 0])]), 1000, 1)
    np.testing.assert_allclose(with_others[: len(alone)], alone)


def test_no_reading_far_from_a_stop_gives_stops_alone():
    points = traveller()
    at_home = points[find_stops(points, 200, 8).labels >= 0]
    found = find_stops(at_home, 200, 8, covering=(1000, 1000))
    assert found.states.kind == "stops"
    assert "every reading within 1000 m of a stop" in found.note


def test_without_any_stop_cells_cover_alone_and_one_state_is_none():
    rng = np.random.default_rng(0)
    wander = np.cumsum(rng.normal(scale=KM, size=(300, 2)), axis=0)
    found = find_stops(wander, 50, 50, covering=(1000, 1000))
    assert set(found.labels) == {-1}
    assert found.states.names[0] == "cell 0"
    assert (away_km(wander, found.states) <= 1).mean() >= 0.95
    with pytest.raises(InputError, match="a chain needs 2 states"):
        find_stops(np.tile([[10.0, 20.0]], (9, 1)), 50, 50, covering=(1000, 1000))


def test_states_are_never_more_than_can_be_solved(monkeypatch):
    monkeypatch.setattr(cover, "MOST", 40)
    rng = np.random.default_rng(0)
    wander = rng.uniform(-0.5, 0.5, (3_000, 2))
    assert len(find_stops(wander, 50, 50, covering=(1000, 1000)).states) <= 40


def test_who_asks_for_stops_gets_stops():
    points = traveller()
    t_s = np.arange(len(points)) * 300.0

    def kind(**options):
        return fit_model(from_arrays(t_s, points, "km"), FitSpec(**options, cycle="none")).states.kind

    assert kind() == "stops and cells"
    assert kind(n_states=2) == kind(cells_m=0.0) == kind(noise="drop") == "stops"
    assert kind(n_states=2, cells_m=500.0) == "stops and cells"
    with pytest.raises(InputError, match="`noise='drop'` is for stops; these states are stops and cells"):
        kind(noise="drop", cells_m=500.0)
    with pytest.raises(InputError, match="`cells_m` stands beside stops"):
        kind(grid_m=500.0, cells_m=500.0)


def test_states_can_be_named():
    points = traveller()
    options = FitSpec(names={"stop 1": "work", "cell 2": "bridge"}, cycle="none")
    model = fit_model(from_arrays(np.arange(len(points)) * 300.0, points, "km"), options)
    assert model.states.names[:3] == ("stop 0", "work", "bridge")
    for name, new, says in (("stop 9", "home", "no state is called 'stop 9'"), ("work", "stop 0", "distinct names")):
        with pytest.raises(InputError, match=says):
            model.states.renamed({name: new})
