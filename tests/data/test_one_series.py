"""One made-up series in every export there is: read without a flag, or with the one that its message says, all give the
same readings and the same model."""

import io
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from veilstream.data.fitting import fit_model
from veilstream.data.sources import read
from veilstream.data.spec import FitSpec
from veilstream.errors import InputError

STEPS = 120
T = [1704096000 + 300 * k for k in range(STEPS)]  # 2024-01-01T08:00:00Z, and every five minutes
PLACES = [((48.1, 11.5), (48.2, 11.6), (48.15, 11.7))[k * k // 10 % 3] for k in range(STEPS)]
VALUES = [60 + k * k // 10 % 7 * 10 for k in range(STEPS)]
PATHS = [(t, *place) for t, place in zip(T, PLACES, strict=True)]
SERIES = list(zip(T, VALUES, strict=True))


def iso(t, form="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.fromtimestamp(t, UTC).strftime(form)


def lines(head, rows):
    return "\n".join([head, *rows]) + "\n"


def binary(write):
    write(out := io.BytesIO())
    return out.getvalue()


def database(rows):
    """(t, state, attributes) of one tracker or sensor, among other entities."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(
            "CREATE TABLE states_meta (metadata_id INTEGER PRIMARY KEY, entity_id TEXT);"
            "CREATE TABLE state_attributes (attributes_id INTEGER PRIMARY KEY, shared_attrs TEXT);"
            "CREATE TABLE states (state_id INTEGER PRIMARY KEY, metadata_id INTEGER, state TEXT, last_updated_ts FLOAT,"
            " attributes_id INTEGER); INSERT INTO states_meta VALUES (1, 'device_tracker.ann'), (2, 'sun.sun');"
            "INSERT INTO states VALUES (9999, 2, 'below_horizon', 1704096000, NULL);"
        )
        for k, (t, state, attributes) in enumerate(rows):
            db.execute("INSERT INTO state_attributes VALUES (?, ?)", (k, json.dumps(attributes)))
            db.execute("INSERT INTO states VALUES (?, 1, ?, ?, ?)", (k, state, t, k))
        db.commit()
        return db.serialize()


def segments(point):
    return [{"startTime": iso(T[0]), "endTime": iso(T[-1]), "timelinePath": [point(*row) for row in PATHS]}]


def features():
    for t, lat, lon in PATHS:
        geometry = {"type": "Point", "coordinates": [lon, lat]}
        yield {"type": "Feature", "geometry": geometry, "properties": {"time": iso(t)}}


def fixes():
    for t, lat, lon in PATHS:
        yield {"timestamp": iso(t), "latitudeE7": round(lat * 1e7), "longitudeE7": round(lon * 1e7)}


POINTS = pl.DataFrame(PATHS, schema=["time", "lat", "lon"], orient="row")
LEVELS = pl.DataFrame(SERIES, schema=["time", "value"], orient="row")
PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0"
TRACK = '<gpx version="1.1" creator="x"><trk><trkseg>{}</trkseg></trk></gpx>'
CLARITY = "Index,Timestamp (YYYY-MM-DDThh:mm:ss),Event Type,Glucose Value (mg/dL)"
LIBRE = "Glucose Data,Generated on,13-04-2026 10:12 UTC\nDevice,Serial Number,Device Timestamp,Record Type,"
EXPORTS = {
    "a.plt": lines(PLT, (f"{lat},{lon},0,9,1,{iso(t, '%Y-%m-%d,%H:%M:%S')}" for t, lat, lon in PATHS)),
    "a.gpx": TRACK.format("".join(f'<trkpt lat="{a}" lon="{o}"><time>{iso(t)}</time></trkpt>' for t, a, o in PATHS)),
    "Timeline.json": json.dumps(
        {"semanticSegments": segments(lambda t, a, o: {"point": f"{a}°, {o}°", "time": iso(t)})}, ensure_ascii=False
    ),
    "location-history.json": json.dumps(
        segments(lambda t, a, o: {"point": f"geo:{a},{o}", "durationMinutesOffsetFromStartTime": str((t - T[0]) // 60)})
    ),
    "Records.json": json.dumps({"locations": list(fixes())}),
    "a.geojson": json.dumps({"type": "FeatureCollection", "features": list(features())}),
    "2024-01.rec": lines(
        f'{iso(T[0])}\t*                 \t{{"_type":"lwt","tst":1}}',
        (f'{iso(t)}\t*                 \t{{"_type":"location","tst":{t},"lat":{a},"lon":{o}}}' for t, a, o in PATHS),
    ),
    "places.csv": lines("timestamp,latitude,longitude", (f"{iso(t)},{a},{o}" for t, a, o in PATHS)),
    "commas.csv": lines("Time;Lat;Lon", (f"{iso(t)};{a};{o}".replace(".", ",") for t, a, o in PATHS)),
    "a.jsonl": lines("", (json.dumps({"t": t, "lat": a, "lon": o}) for t, a, o in PATHS)),
    "array.json": json.dumps([{"t": t, "lat": a, "lon": o} for t, a, o in PATHS]),
    "a.parquet": binary(POINTS.with_columns(pl.from_epoch("time")).write_parquet),
    "a.feather": binary(POINTS.write_ipc),
    "tracker.db": database((t, "home", {"latitude": a, "longitude": o}) for t, a, o in PATHS),
    "entries.json": json.dumps([{"type": "sgv", "date": 1000 * t, "sgv": v} for t, v in SERIES[::-1]]),
    "entries.csv": "".join(f'"{iso(t)}",{1000 * t},{v},"Flat","x"\n' for t, v in SERIES),
    "clarity.csv": lines(CLARITY, (f"{k},{iso(t)[:-1]},EGV,{v}" for k, (t, v) in enumerate(SERIES))),
    "libre.csv": lines(LIBRE + "Historic Glucose mg/dL", (f"L,A,{iso(t, '%d-%m-%Y %H:%M')},0,{v}" for t, v in SERIES)),
    "export.xml": "<HealthData>"
    + "".join(
        f'<Record type="HKQuantityTypeIdentifier{kind}" unit="count/min" value="{v}" '
        f'startDate="{iso(t, "%Y-%m-%d %H:%M:%S +0000")}"/>'
        for kind, series in (("HeartRate", SERIES), ("RespiratoryRate", SERIES[:9]))
        for t, v in series
    )
    + "</HealthData>",
    "history.csv": lines(
        "entity_id,state,last_changed",
        (f"{who},{v},{iso(t)}" for t, v in SERIES for who in ("sensor.a", "sensor.b")[: 1 + (t == T[0])]),
    ),
    "sensor.db": database((t, str(v), {}) for t, v in SERIES),
    "usage.xml": '<feed xmlns="http://www.w3.org/2005/Atom"><e:IntervalBlock xmlns:e="http://naesb.org/espi">'
    + "".join(
        f"<e:IntervalReading><e:timePeriod><e:start>{t}</e:start></e:timePeriod><e:value>{v}</e:value></e:IntervalReading>"
        for t, v in SERIES
    )
    + "</e:IntervalBlock></feed>",
    "p1.csv": lines(
        "time,Import T1 kWh,Import T2 kWh",
        (f"{iso(T[0] + 300 * (k - 1))},{sum(VALUES[:k])},5" for k in range(STEPS + 1)),
    ),
    "table.parquet": binary(LEVELS.write_parquet),
}


def as_its_message_says(path, tell):
    """Readings without a flag, or with the first of its message that `tell` chooses."""
    try:
        return read([str(path)])
    except InputError as fault:
        line = str(fault)
    said = re.findall(r"`(columns|time_format)='([^`]*)'`", line)
    assert said, line
    name, value = said[tell]
    return read([str(path)], **{name: value})


@pytest.mark.parametrize("name", EXPORTS)
def test_every_export_gives_the_same_readings_and_model(name, tmp_path):
    path, content = tmp_path / name, EXPORTS[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    readings = as_its_message_says(path, -1 if name == "tracker.db" else 0)
    frame = readings.frame.sort("t")
    assert frame["t"].to_list() == [1_000_000 * t for t in T]
    expected = PLACES if readings.kind == "position" else [(v,) for v in VALUES]
    assert np.allclose(frame.select(readings.columns).to_numpy(), expected, atol=1e-9)
    model = fit_model(readings, FitSpec(hold_out=0.0, cycle="none"))
    assert model.runs.transitions == STEPS - 1
    assert len(model.states) == len(set(expected))
