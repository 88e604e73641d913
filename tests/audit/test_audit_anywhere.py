"""An audit of a policy without an end: what it does on anybody's data, and what bounds it."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.data.synthetic import city
from veilstream.errors import InputError

PERSON = city(300)
LAT, LON = PERSON.points.T
TABLE = {"time": PERSON.t_s, "lat": LAT, "lon": LON}


@pytest.fixture(scope="module")
def started():
    return vs.start("500m", max="2km", progress=False)


def test_figures_are_those_of_the_loop_on_the_data_and_the_meter_stands_above_the_bits(started):
    found = vs.audit(started.artefact, TABLE, progress=False)
    policy, rng, copies = started.policy, np.random.default_rng(1), 60
    mechanism, step = FrameMechanism(policy), (PERSON.t_s // 300).astype(int)
    first = np.unique(step, return_index=True)[1]
    s, errors = mechanism.start(copies), []
    for i, gap in zip(first, np.diff(step[first], prepend=step[0] - 1), strict=True):
        s = s if gap == 1 else mechanism.skip(s, int(gap) - 1)
        s, y = mechanism.step(s, np.repeat(policy.lattice.encode(PERSON.points[[i]]), copies), rng.random(copies))
        errors.append(vs.data.states.apart_km(np.tile(PERSON.points[i], (copies, 1)), policy.lattice.decode(y)).mean())
    later = found.later.figures
    assert later.raw_distortion.value == pytest.approx(np.mean(errors), rel=0.05)
    assert found.data.charged == pytest.approx(s.total.mean() / len(first), rel=0.05)
    assert later.leakage.value < found.data.charged and later.beyond.value == 0 and not found.fails
    assert {c.every_step for c in found.limits} == {True, False}
    assert f"{found.data.charged:.3f} bits per step on the data given" in found.words


def test_a_policy_without_data_is_broken_by_whom_it_does_not_fit(tmp_path):
    """The kernel stays for an hour; who moves 5 km a step on thirteen days breaks the mean of it."""
    rng, n = np.random.default_rng(0), 1300
    points = np.array([48.0, 11.0]) + np.cumsum(rng.normal(0, 0.03, (n, 2)), 0) * 0.5
    wild = {"time": 1.6e9 + 300.0 * np.arange(n) + 86_400 * 6 * (np.arange(n) // 100), "lat": points[:, 0]}
    found = vs.audit(vs.start("300m", progress=False).artefact, {**wild, "lon": points[:, 1]}, progress=False)
    assert found.later.figures.units >= 10 and found.fails
    assert found.words.startswith("Limit broken.")


def test_what_cannot_be_asked_of_it_is_one_line(started):
    with pytest.raises(InputError, match="has none"):
        vs.audit(started.artefact, against=["planar-laplace"], progress=False)
    with pytest.raises(InputError, match="about positions"):
        vs.audit(started.artefact, {"time": PERSON.t_s, "kwh": LAT}, columns="value=kwh", progress=False)
    assert "there is no later data" in vs.audit(started.artefact, progress=False).words
