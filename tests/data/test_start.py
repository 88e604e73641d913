"""A model without data: told states, a public kernel, and a line where there would be too many."""

import numpy as np
import pytest

from veilstream.artefact import impossible_next
from veilstream.data.cold_start import MOST, Kernel, around, grid_around, levels, places
from veilstream.data.states import apart_km
from veilstream.errors import InputError

TOWN = (48.137, 11.575)


def test_an_even_grid_covers_the_circle():
    ground = grid_around(TOWN, 5000, 500)
    assert len(ground.states) == pytest.approx(np.pi * 100, rel=0.05)
    rng = np.random.default_rng(0)
    angle, r = rng.uniform(0, 2 * np.pi, 500), 4.5 * np.sqrt(rng.random(500))
    points = np.array(TOWN) + np.stack([r * np.cos(angle), r * np.sin(angle) / np.cos(np.radians(TOWN[0]))], 1) / 111.2
    away = ground.states.distance_to(points, ground.states.encode(points))
    assert away.max() <= ground.within + 0.01 and not ground.uneven


def test_cells_lie_on_a_grid_that_everybody_has():
    """Another middle gives the same cells: where she said she is cannot be read off them."""
    one, two = (grid_around(TOWN, 3000, 500), grid_around((TOWN[0] + 0.002, TOWN[1] + 0.003), 3000, 500))
    common = set(map(tuple, one.states.coordinates.round(9))) & set(map(tuple, two.states.coordinates.round(9)))
    assert len(common) > 0.8 * len(one.states)


def test_thousands_of_cells_get_wider_with_the_distance():
    ground = grid_around(TOWN, 20_000, 500)  # 5,027 of them if even
    assert 0.9 * MOST < len(ground.states) <= MOST and ground.uneven and "wider with the distance" in ground.note
    away = apart_km(np.tile(TOWN, (len(ground.states), 1)), ground.states.coordinates)
    width = np.sqrt(ground.area)
    assert width[away < 4].max() == 500 and width[away > 15].min() == 2000 and away.max() < 20


def test_what_cannot_be_had_names_the_finest_that_can():
    with pytest.raises(InputError, match=r"finest that goes is `grid_m=(\d+)m`") as fault:
        grid_around(TOWN, 200_000, 10)
    finest = float(str(fault.value).split("grid_m=")[1].split("m`")[0])
    assert len(grid_around(TOWN, 200_000, finest).states) <= MOST
    with pytest.raises(InputError, match="cannot cover"):
        grid_around(TOWN, 200_000, 0.9 * finest)


def test_the_kernel_stays_moves_near_and_can_go_anywhere():
    ground = grid_around(TOWN, 3000, 1000)
    kernel = Kernel.of(300, 3600, 1.0, 0.01)
    P, n = kernel.chain(ground.states, ground.area).transition, len(ground.states)
    assert P.diagonal() == pytest.approx(0.99 * (1 - 1 / 12) + 0.01 / n)
    assert not impossible_next(kernel.chain(ground.states, ground.area))
    d = ground.states.distances()
    i, j, k = 0, *np.argsort(d[0])[[1, 5]]
    assert (P[i, j] - 0.01 / n) / (P[i, k] - 0.01 / n) == pytest.approx(np.exp(d[i, k] - d[i, j]))


def test_a_wide_cell_is_entered_more():
    ground = grid_around(TOWN, 20_000, 500, 300)
    chain = Kernel.of(300, 3600, 1.67, 1e-3).chain(ground.states, ground.area)
    assert np.corrcoef(ground.area, chain.stationary)[0, 1] > 0.8


def test_levels_and_places():
    found = levels("0:5:0.5kW").states
    assert (len(found), found.unit, found.coordinates[-1, 0]) == (11, "kW", 5.0)
    assert found.encode([0.2, 0.3, 9.0, -1.0]).tolist() == [0, 1, 10, 0]
    assert levels("40:400:20").states.unit == ""
    told = places("home=48.1,11.5; work = 48.2,11.6").states
    assert told.names == ("home", "work") and told.coordinates[1].tolist() == [48.2, 11.6]


def test_places_of_a_file(tmp_path):
    (tmp_path / "p.csv").write_text("name,lat,lon\nhome,48.1,11.5\nwork,48.2,11.6\n")
    assert places(str(tmp_path / "p.csv")).states.names == ("home", "work")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: levels("0:5"), "FROM:TO:STEP"),
        (lambda: levels("5:0:1kW"), "must rise"),
        (lambda: levels("0:5:9kW"), "one level only"),
        (lambda: levels("0:5:0.0001kW"), "at most 1000"),
        (lambda: levels("0s:5:1kW"), "has the unit"),
        (lambda: places("home=48.1,11.5"), "at least 2"),
        (lambda: places("home=48.1;b=1,2"), "NAME=LAT,LON"),
        (lambda: places("a=1,2;a=3,4"), "twice"),
        (lambda: places("a=1,2;b=300,4"), "latitude must be within"),
        (lambda: around("48"), "latitude and longitude"),
        (lambda: around("95,0"), "must be within"),
        (lambda: grid_around(TOWN, 100, 500), "must be more than"),
        (lambda: Kernel(0.5, 0.0, 0.1), "`jump`"),
        (lambda: Kernel(0.5, 1.0, 0.0), "`anywhere`"),
    ],
)
def test_bad_input_is_one_line(make, says):
    with pytest.raises(InputError, match=says) as fault:
        make()
    assert "\n" not in str(fault.value)
