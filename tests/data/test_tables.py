"""How tables are written: marks and commas, dates, the hour that comes twice, names as values."""

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from exportkit import rows
from veilstream.data.fitting import fit_model
from veilstream.data.sources import read
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError


def test_semicolons_decimal_commas_and_dots_in_dates(put):
    text = "Datum;Uhrzeit\nDatum/Zeit;Verbrauch (kWh)\n"
    path = put("m.csv", text.replace("Datum/Zeit", "Zeit") + "31.12.2023 23:45;0,25\n01.01.2024 00:00;1.234,5\n")
    found = read([path], columns="time=Zeit,value=Verbrauch (kWh)")
    assert (rows(found), found.unit) == ([(-29700.0, 0.25), (-28800.0, 1234.5)], "kWh")
    assert found.account.count("decimal commas") == 1
    tabs = put("t.tsv", "time\tvalue\n2024-01-01T08:00:00Z\t0.5\n2024-01-01T08:05:00Z\t7\n")
    assert rows(read([tabs])) == [(0.0, 0.5), (300.0, 7.0)]
    path = put("p.csv", "time;lat;lon\n2024-01-01T08:00:00Z;48,1;11,5\n2024-01-01T08:05:00Z;48,2;11,5\n")
    assert rows(read([path])) == [(0.0, 48.1, 11.5), (300.0, 48.2, 11.5)]


def test_day_and_month_are_told_apart_by_the_whole_file(put):
    american = "time,value\n01-02-2024 08:00 AM,1\n01-13-2024 08:00 PM,2\n"
    (_, a), (later, b) = rows(read([put("a.csv", american)]))
    assert (a, b, later) == (1.0, 2.0, 12 * 86400.0 + 12 * 3600)
    british = "time,value\n02/01/2024 08:00,1\n13/01/2024 08:00:00,2\n".replace(":00:00", ":00")
    assert [t for t, _ in rows(read([put("b.csv", british)]))] == [86400.0, 12 * 86400.0]
    with pytest.raises(InputError, match="cannot tell day from month"):
        read([put("c.csv", "time,value\n02/01/2024 08:00,1\n03/01/2024 08:00,2\n")])


def hours(readings):
    t = readings.frame["t"].to_list()
    return [(b - a) / 3.6e9 for a, b in itertools.pairwise(t)]


@pytest.mark.parametrize("minutes", [15, 30, 60])
def test_the_hour_that_comes_twice_is_told_apart_by_order(put, minutes):
    """Every local stamp of the night, as a meter writes them; forwards, backwards, and in two streams."""
    first = datetime(2023, 10, 28, 23, 0, tzinfo=UTC)
    clock = [
        (first + timedelta(minutes=minutes * k)).astimezone(ZoneInfo("Europe/Berlin")) for k in range(300 // minutes)
    ]
    local = [f"{c:%Y-%m-%d %H:%M}" for c in clock]
    lines = [f"{c},{k}" for k, c in enumerate(local)]
    even = [minutes / 60] * (len(lines) - 1)
    for order in (lines, lines[::-1]):
        found = read([put("m.csv", "\n".join(["time,value", *order]))], tz="Europe/Berlin")
        assert sorted(map(abs, hours(found))) == even
        assert found.account.count("clock change") == 60 // minutes
    both = [f"{who},{line}" for line in lines for who in "ab"]
    assert set(hours(read([put("m.csv", "\n".join(["id,time,value", *both]))], tz="Europe/Berlin"))) == {
        0.0,
        minutes / 60,
    }
    unknown = read([put("m.csv", "\n".join(["time,value", *lines]))])
    assert any("say its `tz`" in e.note for e in unknown.account.entries if e.step == "clock change")


def test_an_hour_that_comes_twice_and_is_there_once_is_said(put):
    text = "time,value\n2023-10-29 01:30,1\n2023-10-29 02:30,2\n2023-10-29 03:30,3\n"
    found = read([put("m.csv", text)], tz="Europe/Berlin")
    assert hours(found) == [1.0, 2.0]
    assert any("once in the file" in e.note for e in found.account.entries)


def test_zone_names_are_states(put):
    lines = [f"2024-01-{1 + k // 24:02d}T{k % 24:02d}:00:00Z,{'home' if k % 24 < 8 else 'Work'}" for k in range(240)]
    found = read([put("z.csv", "\n".join(["time,zone", *lines]))])
    assert (found.kind, found.names) == ("name", ("Work", "home"))
    model = fit_model(found, FitSpec(hold_out=0.0, cycle="none"))
    assert sorted(model.states.names) == ["Work", "home"]
    stays = model.chain.transition[model.states.names.index("home"), model.states.names.index("home")]
    assert stays == pytest.approx(7 / 8, abs=0.01)
    assert model.states.distances().tolist() == [[0, 1], [1, 0]]
    assert model.distances.raw_mean == 0
    with pytest.raises(InputError, match="`width` is for numbers"):
        fit_model(found, FitSpec(width=2.0, cycle="none"))
