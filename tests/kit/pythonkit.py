"""A person and a household, as tables, for the tests of the Python interface."""

from functools import cache

import pytest

import veilstream as vs
from veilstream.data.synthetic import city, household

pd = pytest.importorskip("pandas")
PERSON, HOME = city(1200), household(900)
LIMIT = "0.2kWh"


def places(times):
    lat, lon = PERSON.points.T
    return {"time": times, "lat": lat, "lon": lon}


def meter(n=None):
    return pd.DataFrame({"time": pd.to_datetime(HOME.t_s[:n], unit="s", utc=True), "kWh": HOME.points[:n, 0]})


@cache
def solved():
    return vs.solve(vs.fit(meter(), n_states=3), avg=LIMIT)
