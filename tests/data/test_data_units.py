"""Quantities with units."""

import pytest

from veilstream.data.columns import guess_unit
from veilstream.errors import InputError
from veilstream.units import counted, format_duration, parse_duration, parse_length_m, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("2km", "km", 2.0),
        ("500m", "km", 0.5),
        ("500 m", "km", 0.5),
        ("1mi", "km", 1.609344),
        ("0.2kWh", "kWh", 0.2),
        ("200Wh", "kWh", 0.2),
        ("3", "km", 3.0),
        (".5", "", 0.5),
        ("1e-1km", "km", 0.1),
        ("20C", "C", 20.0),
    ],
)
def test_quantities_convert_into_the_unit_of_the_model(text, unit, expected):
    assert parse_quantity(text, unit) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("2kWh", "km", "must be one of"),
        ("km", "km", "not a number"),
        ("", "km", "not a number"),
        ("1km", "", "`unit='km'`"),
        ("5m", "C", "must be 'C'"),
        ("1e999km", "km", "finite"),
        ("2 k m", "km", "not a number"),
    ],
)
def test_wrong_units_are_one_line(text, unit, says):
    with pytest.raises(InputError) as error:
        parse_quantity(text, unit, "--avg")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_durations_and_lengths():
    assert parse_duration("5min") == 300
    assert parse_duration("1h") == 3600
    assert parse_length_m("0.2km") == pytest.approx(200)
    assert format_duration(300) == "5 min"
    assert format_duration(90) == "90 s"
    for bad in ("0s", "-5min", "5parsec"):
        with pytest.raises(InputError):
            parse_duration(bad)


def test_one_is_not_several():
    assert [counted(n, "user") for n in (0, 1, 2, 1000)] == ["0 users", "1 user", "2 users", "1,000 users"]


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("KWH/hh (per half hour)", "kWh"),
        ("power (W)", "W"),
        ("energykWh", "kWh"),
        ("few", ""),
        ("window", ""),
        ("raw", ""),
    ],
)
def test_a_word_that_ends_like_a_unit_has_none(column, unit):
    assert guess_unit(column) == unit
