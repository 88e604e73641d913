"""Messages whose fields have names of their own: told, remembered or known; the names decide, never the values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilstream.gateway.wire import Grid, Reading, Refusal, number, parse

HOURLY = Grid(3600.0)
OWN = {"stream": "a", "t": 7200, "value": 5.5}


def one(message, stream=None, columns=None, grid=HOURLY):
    (found,) = parse(json.dumps(message).encode(), grid, stream, columns=columns)
    return found


def same(found, wanted=OWN):
    return found == one(wanted)


@pytest.mark.parametrize(
    ("message", "columns"),
    [
        ({"patient": "a", "timestamp": 7200, "glucose": 5.5}, None),
        ({"user_id": "a", "Timestamp": 7200, "Glucose Value (mg/dL)": 5.5, "battery": 80}, None),
        ({"stream": "a", "ts": 7_200_000_000_000 / 1000, "sgv": 5.5}, None),
        ({"who": "a", "when": 7200, "level": 5.5}, {"stream": "who", "time": "when", "value": "level"}),
        ({"stream": "a", "t": 1, "when": 7200, "value": 5.5}, {"time": "when"}),
        (OWN, {"time": "when", "value": "level"}),  # our own names are known whatever was told
    ],
)
def test_a_reading_is_found_by_the_names_of_its_fields(message, columns):
    assert same(one(message, columns=columns), OWN if "ts" not in message else OWN | {"t": 7_200_000_000})


def test_large_times_are_milliseconds_where_the_name_is_not_ours():
    assert same(one({"stream": "a", "ts": 1_700_000_000_000, "sgv": 5.5}), OWN | {"t": 1_700_000_000})


def test_on_a_map_and_in_a_batch():
    place = {"stream": "a", "t": 7200, "lat": 1.5, "lon": 2.5}
    named = {"device": "a", "time": 7200, "latitude": 1.5, "longitude": 2.5}
    found = parse(json.dumps([named, place, {"x": 1}, 3]).encode(), HOURLY)
    assert found[0] == found[1] == one(place) and found[2:] == [Refusal.stream, Refusal.unreadable]


def test_the_topic_says_whose_it_is():
    assert one({"id": 7, "timestamp": 7200, "glucose": 5.5}, stream="a") == one(OWN)
    assert one({"stream": "b", "timestamp": 7200, "glucose": 5.5}, stream="a") is Refusal.stream


@pytest.mark.parametrize(
    "rest",
    [{"battery": 80}, {"battery": 80, "signal": 3}, {}, {"lat": 3}, {"x" * 101: 3}, {str(i): i for i in range(65)}],
)
def test_what_no_name_says_is_not_guessed(rest):
    """It is a reading without a value, as ever: a draw that does not look."""
    found = one({"stream": "a", "t": 7200, **rest})
    assert isinstance(found, Reading) and found.step == 2 and str(found.point) in ("nan", "(3.0, nan)")


@pytest.mark.slow
@given(st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.lists(st.integers())))
def test_what_is_in_the_value_never_decides_which_field_it_is(value):
    for names in (("stream", "t", "value"), ("patient", "time", "glucose")):
        found = one(dict(zip(names, ("a", 7200, value), strict=True)) | {"battery": 123.25, "sgv": 123.25})
        assert isinstance(found, Reading) and (found.stream, found.step) == ("a", 2)
        assert str(found.point) == str(number(value))


def test_owntracks_stays_owntracks():
    found = one({"_type": "location", "tst": 7200, "lat": 1.0, "lon": 2.0, "time": 1}, "a", {"time": "time"})
    assert found.owntracks and found.step == 2
    assert one({"_type": "waypoint", "timestamp": 1, "glucose": 3}, "a") is Refusal.not_a_location
