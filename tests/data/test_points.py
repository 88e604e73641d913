"""Public release points: what is released belongs to everybody's grid, not to somebody's home."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilstream as vs
from veilstream.artefact import load, save
from veilstream.control.replay import Replay
from veilstream.data.points import EQUATOR_M, nearest_points, points_of
from veilstream.data.states import StateSpace, apart_km
from veilstream.data.synthetic import city
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average, Instantaneous

HOME = (39.98431, 116.31827)


def whole_grid(lat, lon, spacing_m, reach):
    """Every point of the grid within `reach` spacings, by whole numbers and not by rounding."""
    degrees = spacing_m / EQUATOR_M
    digits = next(k for k in range(9) if 10**-k <= degrees)
    unit = Fraction(1, 10**digits)
    k = max(1, round(degrees / float(unit)))
    found = []
    for i in range(
        math.floor((lat - reach * degrees) / (k * unit)), math.ceil((lat + reach * degrees) / (k * unit)) + 1
    ):
        row = i * k * unit
        k_lon = max(1, round(degrees / float(unit) / math.cos(math.radians(row))))
        wide = reach * degrees / math.cos(math.radians(lat))
        for j in range(math.floor((lon - wide) / (k_lon * unit)), math.ceil((lon + wide) / (k_lon * unit)) + 1):
            found.append((float(row), float(j * k_lon * unit)))
    return np.array(found), digits


@settings(deadline=None, max_examples=60)
@given(st.floats(-75, 75), st.floats(-179, 179), st.sampled_from([50.0, 100, 250, 333, 500, 1000, 5000]))
def test_the_nearest_point_is_that_of_the_whole_grid(lat, lon, spacing):
    grid, digits = whole_grid(lat, lon, spacing, 4)
    away = apart_km(np.tile((lat, lon), (len(grid), 1)), grid)
    [found], told = nearest_points(np.array([[lat, lon]]), spacing)
    assert told == digits
    mine = apart_km(np.array([[lat, lon]]), found[None])[0]
    assert mine == pytest.approx(away[away >= 1e-3].min(), abs=1e-9)
    assert tuple(found) in set(map(tuple, grid.tolist()))
    assert all(len(repr(float(v)).partition(".")[2]) <= max(digits, 1) for v in found)


def test_the_grid_is_the_same_for_everybody():
    places = city(10).states
    together = points_of(places).coordinates
    alone = [nearest_points(row[None], 250.0)[0][0] for row in places.coordinates]
    assert sorted(map(tuple, alone)) == list(map(tuple, together.tolist()))
    far = StateSpace("places", [HOME, (HOME[0] + 1e-4, HOME[1])], ("a", "b"), "km")
    assert len(points_of(far, "5km")) == 1  # two states of one point share it
    assert points_of(far, "5km").names == ("40.00 116.34",)


def test_no_release_is_the_centre_of_a_state_not_even_by_chance():
    on_grid = StateSpace("places", [(39.984, 116.319)], ("home",), "km")
    [point] = points_of(on_grid).coordinates
    assert 0.1 < apart_km(on_grid.coordinates, point[None])[0] < 0.5
    assert points_of(on_grid, "states") is None


def test_values_are_released_at_round_levels_in_their_own_bins():
    glucose = StateSpace("bins", [[58.3], [118.7], [231.9]], ("low", "in range", "high"), "mg/dL", [70.0, 180.0])
    assert points_of(glucose).coordinates[:, 0].tolist() == [60.0, 120.0, 230.0]
    near_edge = StateSpace("bins", [[69.0], [118.7], [231.9]], ("low", "in range", "high"), "mg/dL", [70.0, 180.0])
    assert (near_edge.encode(points_of(near_edge).coordinates) == np.arange(3)).all()  # a hypo stays a hypo
    meter = StateSpace("bins", [[0.0517], [0.0831], [0.4127]], ("a", "b", "c"), "kWh", [0.07, 0.2])
    assert points_of(meter).names == ("0.052", "0.084", "0.42")
    assert points_of(meter, "100Wh").coordinates[:, 0].tolist() == [0.1, 0.4]
    assert points_of(meter, "0.25").names == ("0", "0.5")
    edge = StateSpace("bins", [[1.0], [np.nextafter(2.0, 0)], [3.0]], ("a", "b", "c"), "", [1.5, 2.0])
    assert points_of(edge) is None  # no round number of four digits lies between


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.001, 1e4), min_size=3, max_size=12, unique=True))
def test_round_levels_are_never_farther_than_a_twentieth_of_the_gap(levels):
    level = np.sort(np.unique(np.round(levels, 3)))
    if len(level) < 2:
        return
    edges = (level[1:] + level[:-1]) / 2
    states = StateSpace("bins", level[:, None], tuple(map(str, range(len(level)))), "kWh", edges)
    points = points_of(states)
    assert len(points) == len(level)
    gap = np.diff(level, prepend=-np.inf, append=np.inf)
    off = np.abs(points.coordinates - states.coordinates)[:, 0]
    assert (off <= np.minimum(gap[1:], gap[:-1]) / 20 + 1e-9).all()


@pytest.mark.parametrize("show", ["0", "-1m", "300km", "fluffy", "0.5kWh"])
def test_what_is_no_distance_is_said_in_one_line(show):
    with pytest.raises(InputError) as fault:
        points_of(city(10).states, show)
    assert "show" in str(fault.value) and "\n" not in str(fault.value)


def test_felt_distances_are_from_readings_to_points():
    source = city(400)
    symbols = source.states.encode(source.points)
    record = Trajectories(np.zeros(400, int), np.arange(400), source.points, symbols).recorded()
    felt = Utility.of(source.chain, source.states, record, show="500m")
    for x in np.unique(symbols):
        own = source.points[symbols == x]
        for y, point in enumerate(felt.points.coordinates):
            away = apart_km(own, np.tile(point, (len(own), 1)))
            assert felt.distortion[x, y] == pytest.approx(away.mean())
            assert felt.worst[x, y] == pytest.approx(away.max())
    assert isinstance(felt.replay, Replay) and felt.replay.distances.shape == (400, len(felt.points))
    limit = 0.5 * felt.blind
    solution = vs.solve(felt.problem(Average(limit=limit)), replay=felt.replay, window=1)
    assert solution.record.error == pytest.approx(limit, rel=0.03)
    assert Utility.of(source.chain, source.states, record, "states").points is None  # the paper's meaning: its releases


def test_a_policy_on_points_goes_through_its_file_and_a_gateway(tmp_path):
    from gatewaykit import core_of
    from veilstream.gateway.space import Space
    from veilstream.gateway.wire import Grid, reading

    source = city(300)
    near = StateSpace("places", [*source.states.coordinates, source.states.coordinates[0] + 1e-4],
                      (*source.states.names, "next door"), "km")  # fmt: skip
    chain = vs.MarkovChain.fit([near.encode(source.points), [len(near) - 1, 0]], len(near))
    utility = Utility.of(chain, near)
    assert utility.problem(Average(weight=1.0)).distortion.shape == (len(near), len(near) - 1)  # a shared point
    solution = vs.solve(utility.problem(Average(weight=0.5)), window=1)
    path = tmp_path / "p.veil"
    parts = {"states": near, "points": utility.points, "period_s": 300.0}
    save(path, solution.policy, problem=solution.problem, **parts)
    art = load(path)
    assert art.shown.names == utility.points.names
    sent = [reading("ann", 300 * i, tuple(p), Grid(300.0, 0.0)) for i, p in enumerate(source.points.tolist())]
    far = Space(art).encoder.felt([tuple(p) for p in source.points[:9].tolist()])  # what a ladder counts
    assert far == pytest.approx(utility.points.distances_from(source.points[:9]))
    with core_of(art) as core:
        out = [o.release for o in core.process(sent).outcomes]
    public = set(map(tuple, utility.points.coordinates.tolist()))
    assert {(r.lat, r.lon) for r in out} <= public
    assert not {(r.lat, r.lon) for r in out} & set(map(tuple, near.coordinates.tolist()))
    with pytest.raises(InputError, match="points but a policy"):
        save(tmp_path / "x.veil", solution.policy, problem=solution.problem, **parts | {"points": near})
    levels = StateSpace("bins", [[1.0]], ("a",), "kWh", [])
    with pytest.raises(InputError, match="another kind"):
        save(tmp_path / "x.veil", solution.policy, problem=solution.problem, **parts | {"points": levels})


def test_a_limit_at_every_step_names_states_and_is_about_points():
    source = city(400)
    record = Trajectories(
        np.zeros(400, int), np.arange(400), source.points, source.states.encode(source.points)
    ).recorded()
    felt = Utility.of(source.chain, source.states, record, show="250m")
    assert felt.names == source.states.names
    allowed = felt.problem(Instantaneous(3.0)).allowed
    assert allowed.shape == (len(source.states), len(felt.points)) and (felt.worst[allowed] <= 3.0).all()
