"""The public lattice: the same place from everywhere, around the earth and up to the poles."""

import numpy as np
import pytest

from veilstream.data.states import apart_km
from veilstream.errors import InputError
from veilstream.model.lattice import Lattice

RNG = np.random.default_rng(3)
ANYWHERE = np.stack([np.degrees(np.arcsin(RNG.uniform(-1, 1, 400))), RNG.uniform(-180, 180, 400)], 1)


@pytest.mark.parametrize("spacing", [0.05, 0.5, 20.0])
def test_a_reading_is_in_the_cell_of_its_nearest_anchor(spacing):
    lattice = Lattice(spacing, 2)
    anchor = lattice.nearest(lattice.encode(ANYWHERE))
    assert (lattice.offset(anchor, lattice.encode(ANYWHERE)) == 0).all()
    inhabited = np.abs(ANYWHERE[:, 0]) < 80
    assert (apart_km(ANYWHERE, lattice.places(anchor))[inhabited] <= 0.75 * spacing).all()


@pytest.mark.parametrize("middle", [[48.1, 11.6], [-33.9, 151.2], [0.0, 179.999], [68.0, -180.0], [51.4999, 0.0]])
def test_an_offset_leads_where_it_was_counted_to(middle):
    lattice = Lattice(0.5, 2)
    anchor = np.repeat(lattice.nearest(lattice.encode([middle])), 441, 0)
    offset = np.stack(np.meshgrid(*[np.arange(-10, 11)] * 2, indexing="ij"), -1).reshape(-1, 2)
    there = lattice.decode(lattice.landing(anchor, lattice.size(anchor[:, 0]), offset))
    straight = 0.5 * np.hypot(*offset.T)
    apart = apart_km(lattice.places(anchor), there)
    assert (np.abs(apart - straight) <= 0.05 * straight + 0.25).all()  # half a column where a band ends
    assert len({tuple(p) for p in there.round(9).tolist()}) == len(there)


def test_far_offsets_go_the_short_way_and_come_back():
    lattice = Lattice(0.5, 2)
    anchor, packed = lattice.nearest(lattice.encode(ANYWHERE[:200])), lattice.encode(ANYWHERE[200:])
    offset = lattice.offset(anchor, packed)
    around = np.rint(360 / lattice.width(anchor[:, 0]))
    assert (np.abs(offset[:, 1]) <= around / 2 + 1).all()
    size = lattice.size(anchor[:, 0])
    apart = apart_km(lattice.decode(lattice.landing(anchor, size, offset)), ANYWHERE[200:])
    columns = np.maximum(size[:, 1] * np.cos(np.radians(ANYWHERE[200:, 0])) / lattice.height, 1)
    assert (apart <= 0.5 * 0.75 * columns + 0.3).all()


def test_levels_have_no_end():
    lattice = Lattice(0.25, 1)
    values = np.array([[0.0], [-7.3], [1e6], [3.12]])
    anchor = lattice.nearest(lattice.encode(values))
    np.testing.assert_allclose(lattice.places(anchor), values, atol=0.125 + 1e-9)
    back = lattice.landing(anchor, lattice.size(anchor[:, 0]), -anchor)
    np.testing.assert_array_equal(lattice.decode(back), 0 * anchor)


def test_what_is_no_lattice_is_refused():
    for spacing, axes in ((0, 2), (np.nan, 1), (1.0, 3)):
        with pytest.raises(InputError, match="lattice needs a spacing"):
            Lattice(spacing, axes)
