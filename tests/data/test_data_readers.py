"""Readers: what is read, and what is refused with file and line."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from veilstream.data.columns import guess_layout, parse_columns
from veilstream.data.sources import read
from veilstream.errors import InputError

PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
GPX = '<?xml version="1.0"?>\n<gpx version="1.1" creator="t">\n<trk>\n{}</trk>\n</gpx>\n'
NOON = "1970-01-01T12:00:00Z"


def point(lat, lon, time=NOON):
    return f'<trkpt lat="{lat}" lon="{lon}"><time>{time}</time></trkpt>\n'


def seconds(readings):
    return (readings.frame["t"].to_numpy() / 1e6).tolist()


# --- formats ---------------------------------------------------------------------------------------------


def test_plt_tree_names_the_user_and_keeps_files_apart(put, tmp_path):
    rows = "1.5,2.5,0,-777,1,1970-01-01,00:00:10\n1.6,2.6,0,9,2,1970-01-02,00:00:00\n"
    for name in ("000/Trajectory/0.plt", "000/Trajectory/1.plt", "001/Trajectory/0.plt"):
        put(f"g/{name}", PLT + rows)
    readings = read([str(tmp_path / "g")])
    assert readings.streams == ("000", "001")
    assert readings.n_traces == 3
    assert readings.frame.height == 6
    assert seconds(readings)[:2] == [10.0, 86400.0]
    assert readings.frame["lat"].to_list()[:2] == [1.5, 1.6]


def test_gpx_segments_are_traces_and_zones_are_respected(put):
    track = f"<trkseg>{point(1, 2, '1970-01-01T01:00:00+01:00')}{point(1, 2, '1970-01-01T00:00:05Z')}</trkseg>"
    other = f'<trkseg>{point(3, 4, "1970-01-01T00:01:00Z")}<trkpt lat="3" lon="4"></trkpt></trkseg>'
    readings = read([put("walk.gpx", GPX.format(track + other))])
    assert seconds(readings) == [0.0, 5.0, 60.0]
    assert readings.n_traces == 2
    assert readings.account.count("missing") == 1


def test_csv_long_positions_and_values(put):
    text = "user,latitude,Longitude,timestamp\na,1,2,100000000\nb,3,4,100000300\na,5,6,100000600\n"
    places = read([put("p.csv", text)])
    assert places.kind == "position"
    assert places.streams == ("a", "b")
    assert seconds(places) == [1e8, 1e8 + 300, 1e8 + 600]
    text = "LCLid,tstp,KWH/hh (per half hour)\nm,2013-01-01 00:30:00.0000000,0.5\nm,2013-01-01 01:00:00.0000000,\n"
    values = read([put("v.csv", text)])
    assert (values.kind, values.unit) == ("value", "kWh")
    assert values.account.count("missing") == 1
    assert values.frame["value"].to_list() == [0.5]


def test_csv_wide_is_one_stream_per_column(put):
    text = "timestamp,m1,m2\n2013-01-01 00:00:00,1,\n2013-01-01 00:30:00,2,3\n"
    readings = read([put("w.csv", text)], unit="kWh")
    assert readings.streams == ("m1", "m2")
    assert readings.frame.sort("stream", "t")["value"].to_list() == [1.0, 2.0, 3.0]
    assert readings.unit == "kWh"
    assert readings.account.count("missing") == 1


def test_jsonl_and_stdin(put, monkeypatch):
    text = '{"stream":"a","t":1700000000.5,"lat":1,"lon":2}\n\n{"stream":"b","t":1700000300,"lat":3.5,"lon":4}\n'
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    for source in (put("x.jsonl", text), "-"):
        readings = read([source])
        assert readings.streams == ("a", "b")
        assert seconds(readings) == [1700000000.5, 1700000300.0]
        assert readings.frame["lat"].to_list() == [1.0, 3.5]


def test_step_numbers_are_steps(put):
    lines = "".join(f'{{"stream":"a","t":{i},"value":{i % 3}}}\n' for i in range(5))
    assert read([put("x.jsonl", lines)]).stepped


def test_globs_folders_and_doubles_are_read_once(put, tmp_path):
    for name in ("a", "b"):
        put(f"d/{name}.csv", "time,value\n2020-01-01,1\n2020-01-02,2\n")
    folder = str(tmp_path / "d")
    for sources in ([folder], [f"{folder}/*.csv"], [folder, f"{folder}/a.csv"]):
        readings = read(sources)
        assert readings.frame.height == 4
        assert readings.streams == ("a", "b")


# --- time ------------------------------------------------------------------------------------------------


def test_time_zones(put):
    text = "time,value\n2013-07-01 12:00:00,1\n2013-01-01 12:00:00,2\n"
    utc, london = read([put("z.csv", text)]), read([put("z.csv", text)], tz="Europe/London")
    assert np.subtract(seconds(utc), seconds(london)).tolist() == [3600.0, 0.0]
    assert "UTC" in utc.account.entries[-1].note
    summer = "time,value\n2013-07-01T12:00:00+02:00,1\n2013-07-01T12:00:00+01:00,2\n"  # an hour apart: one place
    assert np.subtract(seconds(read([put("o.csv", summer)])), seconds(utc)[0]).tolist() == [-7200.0, -3600.0]
    told = "time,value\n31/12/1999 00:30,1\n01/01/2000 00:30,1\n"
    assert np.diff(seconds(read([put("d.csv", told)], time_format="%d/%m/%Y %H:%M"))).tolist() == [86400.0]


def test_a_file_of_many_offsets_is_read_when_told(put):
    text = "time,value\n2013-07-01T12:00:00+08:00,1\n2013-07-01T12:00:00Z,2\n"
    with pytest.raises(InputError, match=r"line 3: mixed time zones.*`tz='own'`"):
        read([put("m.csv", text)])
    assert np.diff(seconds(read([put("m.csv", text)], tz="own"))).tolist() == [8 * 3600.0]


# --- columns ---------------------------------------------------------------------------------------------


def test_columns_are_guessed_and_can_be_told(put):
    layout = guess_layout(["ID", "Time", "x", "y", "speed"], {}, "f")
    assert (layout.stream, layout.time, layout.lat, layout.lon) == ("ID", "Time", "y", "x")
    text = "when,n,e\n2020-01-01T00:00:00Z,1,2\n2020-01-01T00:05:00Z,1,2\n"
    assert read([put("t.csv", text)], columns="time=when,lat=n,lon=e").kind == "position"
    for wrong in ("when", "nothing=x", "time="):
        with pytest.raises(InputError, match="role=column"):
            parse_columns(wrong)


# --- bad input: one line, with file and line -------------------------------------------------------------

HEAD = "time,lat,lon\n2020-01-01T00:00:00Z,1,2\n"
NEXT = "2020-01-01T00:05:00"
SEGMENT = "<trkseg>{}</trkseg>"
BAD = [
    ("h.csv", "a,b\n1,2\n", "h.csv line 1: no time column"),
    ("h.csv", "time,lat\n1,2\n", "no lon column"),
    ("n.csv", HEAD + f"{NEXT}Z,north,2\n", "n.csv line 3: column 'lat' must be a number, found 'north'"),
    ("n.csv", HEAD + f"{NEXT}Z,inf,2\n", "n.csv line 3: column 'lat' must be a number"),
    ("l.csv", HEAD + f"{NEXT}Z,91,2\n", "l.csv line 3: lat is outside -90..90"),
    ("l.csv", HEAD + f"{NEXT}Z,9,-181\n", "l.csv line 3: lon is outside -180..180"),
    ("z.csv", HEAD + f"{NEXT},1,2\n", "z.csv line 3: mixed time zones"),
    ("z.csv", f"time,value\n{NEXT},1\n{NEXT}Z,1\n", "z.csv line 3: mixed time zones"),
    ("t.csv", HEAD + "tomorrow,1,2\n", "t.csv line 3: the time 'tomorrow'"),
    ("t.csv", "time,value\ntomorrow,1\n", "t.csv line 2: cannot read the time 'tomorrow'"),
    ("r.csv", HEAD + f"{NEXT}Z,1,2,3,4\n", "r.csv line 3: 5 fields"),
    ("e.csv", "", "e.csv: empty file"),
    ("e.csv", "time,lat,lon\n", "e.csv: no rows"),
    ("d.csv", "time,lat,lat\n1,2,3\n", "two columns are called 'lat'"),
    ("b.csv", b"\x00\x01\x02\xff" * 100, "b.csv line 1: a binary file"),
    ("b.csv", b"PK\x03\x04" + b"\x00" * 100, "unpack it first"),
    ("p.plt", "hello\n" * 9, "p.plt line 1: a .plt file starts with"),
    ("p.plt", PLT, "p.plt: no points"),
    ("p.plt", PLT + "91,2,0,0,1,2008-10-25,04:41:59\n", "p.plt line 7: lat is outside"),
    ("p.plt", PLT + "1,x,0,0,1,2008-10-25,04:41:59\n", "p.plt line 7: column 'lon' must be a number, found 'x'"),
    ("p.plt", PLT + "1,2,0,0,1,2008-10-25,soon\n", "p.plt line 7: the time '0000-00-00 soon'"),
    ("p.plt", PLT + "1,2,0\n", "7"),
    ("g.gpx", GPX.format(SEGMENT.format(point(1, 2) + point(91, 2))), "g.gpx line 5: lat is outside -90..90"),
    ("g.gpx", GPX.format(SEGMENT.format(point("no", 2))), "g.gpx line 4: column 'lat' must be a number, found 'no'"),
    ("g.gpx", "<gpx><trk>", "g.gpx line 1: not readable as GPX"),
    ("g.gpx", '<!DOCTYPE x [<!ENTITY a "b">]><gpx></gpx>', "refused"),
    ("g.gpx", GPX.format(""), "no track points"),
    ("j.jsonl", '{"t":1,"value":2}\n{"t":\n', "j.jsonl line 2: not JSON"),
    ("j.jsonl", '{"t":1,"value":2}\n[1]\n', "j.jsonl line 2: expected a JSON object"),
    ("j.jsonl", '{"t":1,"value":2}\n\n{"t":2,"value":"x"}\n', "line 3: column 'value' must be a number, found 'x'"),
]


@pytest.mark.parametrize(("name", "text", "says"), BAD, ids=[f"{i}-{b[0]}" for i, b in enumerate(BAD)])
def test_bad_input_is_one_line_with_file_and_line(put, name, text, says):
    with pytest.raises(InputError) as error:
        read([put(name, text)])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_sources(put, tmp_path):
    (tmp_path / "empty").mkdir()
    values = put("b.csv", "time,value\n2020-01-01T00:00:00Z,1\n")
    for sources, says in (
        ([str(tmp_path / "empty")], "a folder without traces"),
        ([str(tmp_path / "nowhere")], "no such file"),
        ([str(tmp_path / "*.gpx")], "matches nothing"),
        ([], "no SOURCE given"),
        ([put("a.csv", HEAD), values], r"b.csv: .*holds positions, this one values"),
    ):
        with pytest.raises(InputError, match=says):
            read(sources)
    with pytest.raises(InputError, match="unknown time zone"):
        read([put("a.csv", HEAD)], tz="Mars/Olympus")


def test_bad_rows_can_be_skipped_and_are_counted(put):
    text = HEAD + f"{NEXT}Z,91,2\n2020-01-01T00:10:00Z,x,2\n2020-01-01T00:15:00Z,1,2\n"
    readings = read([put("s.csv", text)], skip_bad=True)
    assert readings.frame.height == 2
    assert readings.account.count("unreadable") == 2
    assert readings.account.count("read") == 4
    rows = "91,2,0,0,1,2008-10-25,04:41:59\n1,2,0,0,1,2008-10-25,04:41:59\n"
    plt = read([put("s.plt", PLT + rows)], skip_bad=True)
    assert (plt.frame.height, plt.account.count("unreadable")) == (1, 1)


def test_a_table_with_two_people_in_it_is_never_read_as_one(put):
    rows = "".join(
        f"2020-01-01T{i // 60:02d}:{i % 60:02d}:00Z,{who},{i}\n" for i in range(120) for who in ("ann", "bob")
    )
    known = read([put("k.csv", "time,patient,value\n" + rows)])
    assert known.streams == ("ann", "bob")
    path = put("u.csv", "time,owner,value\n" + rows)
    with pytest.raises(InputError, match=r"column owner tells 2 streams apart .* `columns='stream=owner'`"):
        read([path])
    assert read([path], columns="stream=owner").streams == ("ann", "bob")
    assert read([path], columns="stream=-").streams == ("u",)


def test_a_column_that_might_tell_people_apart_has_a_line_in_the_account(put):
    rows = "".join(f"2020-01-01T{i // 60:02d}:{i % 60:02d}:00Z,{i},{'xy'[i % 2]},{i % 7}\n" for i in range(120))
    readings = read([put("m.csv", "time,value,mode,speed\n" + rows)])
    (entry,) = [e for e in readings.account.entries if e.step == "other columns"]
    assert entry.note.startswith("left aside: mode;")
    assert not readings.frame["t"].is_duplicated().any()


def test_a_table_with_a_key_and_one_more_column_has_its_value_there(put):
    layout = guess_layout(["id", "time", "glucose"], {}, "x")
    assert (layout.stream, layout.value, layout.wide) == ("id", "glucose", ())
    with pytest.raises(InputError, match="which of a, b is the value"):
        guess_layout(["id", "time", "a", "b"], {}, "x")
    for header in (["id", "time"], ["id", "time", ""]):
        with pytest.raises(InputError, match="a reading needs lat and lon, or a value"):
            guess_layout(header, {}, "x")


def test_a_glucose_export_is_read_as_it_comes(tmp_path):
    """Clarity: brackets in the names, rows about the person first. LibreView: a line above the header, no ISO dates."""
    clarity = tmp_path / "clarity.csv"
    head = "Index,Timestamp (YYYY-MM-DDThh:mm:ss),Event Type,Patient Info,Glucose Value (mg/dL),Insulin Value (u)"
    rows = [f"{i},2026-03-01T00:{5 * i:02d}:11,EGV,,{100 + i}," for i in range(1, 9)]
    clarity.write_text("\n".join([head, "1,,FirstName,Ann,,", "2,,Alert,,55,", *rows]) + "\n")
    found = read([str(clarity)])
    assert (found.unit, found.frame["value"].to_list()) == ("mg/dL", [100.0 + i for i in range(1, 9)])
    assert found.account.count("missing") == 2
    words = ["9,2026-03-01T00:45:11,EGV,,Low,", "10,2026-03-01T00:50:11,EGV,,High,"]
    clarity.write_text("\n".join([head, *rows, *words]) + "\n")
    found = read([str(clarity)])
    assert found.frame["value"].to_list()[-2:] == [39.0, 401.0] and found.account.count("beyond") == 2
    full = (
        "\ufeffIndex,Timestamp (YYYY-MM-DDThh:mm:ss),Event Type,Event Subtype,Patient Info,Device Info,"
        "Source Device ID,Glucose Value (mg/dL),Insulin Value (u),Carb Value (grams),Duration (hh:mm:ss),"
        "Glucose Rate of Change (mg/dL/min),Transmitter Time (Long Integer),Transmitter ID"
    )  # as others show it; alerts come first, with a value and no time
    told = ["1,,FirstName,,Ann,,,,,,,,,", "2,,Alert,Low,,,iOS,70,,,,,,", "3,,Alert,Signal Loss,,,iOS,,,,00:20:00,,,"]
    rows = [f"{i},2026-03-01T00:{5 * i:02d}:11,EGV,,,,iOS,{100 + i},,,,,{300 * i},8AB" for i in range(4, 9)]
    rows.insert(2, "9,2026-03-01T00:26:40,Carbs,,,,iOS,,,30,,,,")
    clarity.write_text("\n".join([full, *told, *rows]) + "\n", encoding="utf-8")
    found = read([str(clarity)])
    assert (found.unit, found.frame["value"].to_list()) == ("mg/dL", [100.0 + i for i in range(4, 9)])
    assert found.account.count("missing") == 4
    libre = tmp_path / "libre.csv"
    above = "Glucose Data,Generated on,03-04-2026 10:12 UTC,Generated by,Ann"
    head = "Device,Serial Number,Device Timestamp,Record Type,Historic Glucose mg/dL,Scan Glucose mg/dL,Notes"
    rows = [f"Libre,A1,01-03-2026 00:{15 * i:02d},0,{100 + i},," for i in range(4)]
    libre.write_text("\n".join([above, head, *rows, "Libre,A1,01-03-2026 01:00,1,,111,"]) + "\n")
    with pytest.raises(InputError, match=r"line 3: cannot tell day from month .*`time_format='%d-%m-%Y %H:%M'`"):
        read([str(libre)])
    found = read([str(libre)], time_format="%d-%m-%Y %H:%M")
    assert (found.unit, found.frame.height, found.account.count("missing")) == ("mg/dL", 4, 1)
    libre.write_text("\n".join([above, head, *rows, "Libre,A1,01-03-2026 01:00,0,HI,,"]) + "\n")
    with pytest.raises(InputError, match=r"line 7: .* found 'HI'; write the number it stands for; `skip_bad=True`"):
        read([str(libre)], time_format="%d-%m-%Y %H:%M")


def test_dropping_rows_is_not_advised_where_the_whole_file_is_written_otherwise(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("time,value\n" + "".join(f'{1.7e9 + 60 * i:.0f},"0,{i}"\n' for i in range(40)))
    with pytest.raises(InputError, match="so it is in 40 of 40 rows: convert the file") as error:
        read([str(path)])
    assert "skip" not in str(error.value)
    path.write_text("time,value\n" + "".join(f"{1.7e9 + 60 * i:.0f},{'x1' if i == 7 else i}\n" for i in range(40)))
    with pytest.raises(InputError, match=r"line 9: .*`skip_bad=True`"):
        read([str(path)])


def test_a_meters_date_and_time_are_one_column(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("Date/Time,Consumption (kWh)\n2024-01-01 00:00,0.2\n2024-01-01 00:30,0.3\n")
    readings = read([str(path)])
    assert readings.unit == "kWh" and readings.frame["value"].to_list() == [0.2, 0.3]
