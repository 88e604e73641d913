"""Exports that people own, a few made-up lines of each as its program writes them: `read` without a word, or with the
word that its message says."""

import gzip
import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import veilstream
from veilstream.data.fitting import FitOptions, fit_model
from veilstream.data.sources import read
from veilstream.errors import InputError

EIGHT = 1704096000.0  # 2024-01-01T08:00:00Z


@pytest.fixture
def put(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def rows(readings):
    """(seconds after eight, place or value) of every reading, in the order of the file."""
    frame = readings.frame.select("t", *readings.columns)
    return [(t / 1e6 - EIGHT, *found) for t, *found in frame.iter_rows()]


# --- places -----------------------------------------------------------------------------------------------


def test_google_timeline_of_android(put):
    segments = [
        {
            "startTime": "2024-01-01T09:00:00.000+01:00",
            "endTime": "2024-01-01T11:00:00.000+01:00",
            "timelinePath": [{"point": "48.1000000°, 11.5000000°", "time": "2024-01-01T09:05:00.000+01:00"}],
        },
        {
            "startTime": "2024-01-01T10:00:00.000+01:00",
            "endTime": "2024-01-01T11:10:00.000+01:00",
            "startTimeTimezoneUtcOffsetMinutes": 60,
            "visit": {
                "hierarchyLevel": 0,
                "probability": 0.9,
                "topCandidate": {"placeId": "x", "placeLocation": {"latLng": "48.2°, 11.6°"}},
            },
        },
        {
            "startTime": "2024-01-01T10:00:00.000+01:00",
            "endTime": "2024-01-01T11:10:00.000+01:00",
            "visit": {"hierarchyLevel": 1, "topCandidate": {"placeLocation": {"latLng": "48.3°, 11.6°"}}},
        },
        {
            "startTime": "2024-01-01T11:10:00.000+01:00",
            "endTime": "2024-01-01T11:20:00.000-05:00",
            "activity": {"start": {"latLng": "48.2°, 11.6°"}, "end": {"latLng": "48.4°, 11.7°"}},
        },
    ]
    text = {"semanticSegments": segments, "rawSignals": [{"position": {}}], "userLocationProfile": {}}
    found = read([put("Timeline.json", json.dumps(text, ensure_ascii=False, indent=2))])
    stay = [(3600.0 + s, 48.2, 11.6) for s in (0, 1800, 3600, 4200)]
    assert rows(found) == [(300.0, 48.1, 11.5), *stay, (7800.0, 48.2, 11.6), (30000.0, 48.4, 11.7)]
    assert found.streams == ("Timeline",)


def test_google_timeline_of_ios(put):
    segments = [
        {
            "startTime": "2024-01-01T08:00:00.000Z",
            "endTime": "2024-01-01T10:00:00.000Z",
            "timelinePath": [
                {"point": "geo:48.100000,11.500000", "durationMinutesOffsetFromStartTime": "0"},
                {"point": "geo:48.110000,11.510000", "durationMinutesOffsetFromStartTime": "12"},
            ],
        },
        {
            "startTime": "2024-01-01T10:00:00.000Z",
            "endTime": "2024-01-01T10:20:00.000Z",
            "visit": {"hierarchyLevel": "0", "topCandidate": {"placeLocation": "geo:48.2,11.6"}},
        },
    ]
    found = read([put("location-history.json", json.dumps(segments))])
    stay = [(7200.0, 48.2, 11.6), (8400.0, 48.2, 11.6)]
    assert rows(found) == [(0.0, 48.1, 11.5), (720.0, 48.11, 11.51), *stay]


def test_takeout_records_old_and_new(put):
    fixes = [
        {"timestampMs": "1704096000000", "latitudeE7": 481000000, "longitudeE7": 115000000, "accuracy": 12},
        {"timestamp": "2024-01-01T08:05:00.250Z", "latitudeE7": -481000000, "longitudeE7": 115000000},
        {"timestamp": "2024-01-01T08:06:00Z", "accuracy": 5},
    ]
    found = read([put("Records.json", json.dumps({"locations": fixes}))])
    assert rows(found) == [(0.0, 48.1, 11.5), (300.25, -48.1, 11.5)]
    assert found.account.count("missing") == 1


SEMANTIC = {
    "timelineObjects": [
        {
            "placeVisit": {
                "location": {"latitudeE7": 481000000, "longitudeE7": 115000000, "placeId": "x"},
                "duration": {"startTimestamp": "2024-01-01T08:00:00Z", "endTimestamp": "2024-01-01T08:40:00Z"},
            }
        },
        {
            "activitySegment": {
                "startLocation": {"latitudeE7": 481000000, "longitudeE7": 115000000},
                "endLocation": {"latitudeE7": 482000000, "longitudeE7": 115000000},
                "duration": {"startTimestampMs": "1704098400000", "endTimestampMs": "1704100200000"},
                "simplifiedRawPath": {
                    "points": [{"latE7": 481500000, "lngE7": 115000000, "timestamp": "2024-01-01T09:00:00Z"}]
                },
            }
        },
    ]
}


def test_takeout_semantic_months_are_one_person(put, tmp_path):
    for month in ("2024_JANUARY", "2024_MAY"):
        put(f"Semantic/2024/{month}.json", json.dumps(SEMANTIC))
    found = read([str(tmp_path / "Semantic/2024/2024_JANUARY.json")])
    visit = [(s, 48.1, 11.5) for s in (0.0, 1800.0, 2400.0)]
    assert rows(found) == [*visit, (2400.0, 48.1, 11.5), (4200.0, 48.2, 11.5), (3600.0, 48.15, 11.5)]
    assert read([str(tmp_path / "Semantic")]).streams == ("location history",)


def test_owntracks_recorder(put, tmp_path):
    lines = [
        '2024-01-01T08:00:01Z\t*                 \t{"_type":"location","lat":48.1,"lon":11.5,"tst":1704096000,"acc":8}',
        '2024-01-01T08:01:01Z\twaypoint          \t{"_type":"waypoint","desc":"Home","lat":1,"lon":1,"tst":1}',
        '2024-01-01T08:05:01Z\t*                 \t{"_type":"location","lat":48.2,"lon":11.5,"tst":1704096300}',
    ]
    put("store/rec/ann/phone/2024-01.rec", "\n".join(lines) + "\n")
    found = read([str(tmp_path / "store")])
    assert rows(found) == [(0.0, 48.1, 11.5), (300.0, 48.2, 11.5)]
    assert found.streams == ("ann/phone",)
    sealed = '2024-01-01T08:00:01Z\t*                 \t{"_type":"encrypted","data":"abc"}\n'
    with pytest.raises(InputError, match="no location in it; messages that are encrypted"):
        read([put("x.rec", sealed)])


STRAVA = """<?xml version="1.0" encoding="UTF-8"?>
<gpx creator="StravaGPX Android" version="1.1" xmlns="http://www.topografix.com/GPX/1/1"
 xmlns:gpxtpx="http://www.garmin.com/xmlschemas/TrackPointExtension/v1">
 <metadata><time>2024-01-01T08:00:00Z</time></metadata>
 <trk><name>Morning Ride</name><type>cycling</type><trkseg>
   <trkpt lat="48.1000000" lon="11.5000000"><ele>519.0</ele><time>2024-01-01T08:00:00Z</time>
    <extensions><power>120</power><gpxtpx:TrackPointExtension><gpxtpx:hr>99</gpxtpx:hr></gpxtpx:TrackPointExtension>
    </extensions></trkpt>
   <trkpt lat="48.1001000" lon="11.5000000"><ele>519.0</ele><time>2024-01-01T08:00:05Z</time></trkpt>
 </trkseg></trk></gpx>
"""
KOMOOT = """<?xml version='1.0' encoding='UTF-8'?>
<gpx version="1.1" creator="https://www.komoot.de" xmlns="http://www.topografix.com/GPX/1/1">
  <metadata><name>Walk</name><author><link href="https://www.komoot.de"><text>komoot</text></link></author></metadata>
  <trk><name>Walk</name><trkseg>
      <trkpt lat="48.1" lon="11.5"><ele>520.1</ele><time>2024-01-01T08:00:00.000Z</time></trkpt>
      <trkpt lat="48.2" lon="11.5"><ele>520.1</ele><time>2024-01-01T08:05:00.500Z</time></trkpt>
  </trkseg></trk></gpx>
"""


def test_gpx_of_strava_and_komoot(put):
    assert rows(read([put("s.gpx", STRAVA)])) == [(0.0, 48.1, 11.5), (5.0, 48.1001, 11.5)]
    assert rows(read([put("k.gpx", KOMOOT)])) == [(0.0, 48.1, 11.5), (300.5, 48.2, 11.5)]


def feature(kind, coordinates, **properties):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def collection(*features):
    return json.dumps({"type": "FeatureCollection", "features": features})


def test_geojson_points_and_lines(put):
    at, later = "2024-01-01T08:00:00Z", "2024-01-01T08:05:00Z"
    points = [feature("Point", [11.5, 48.1], timestamp=at), feature("Point", [11.5, 48.2, 3], timestamp=later)]
    found = read([put("p.geojson", collection(*points))])
    assert rows(found) == [(0.0, 48.1, 11.5), (300.0, 48.2, 11.5)]
    assert (found.streams, found.n_traces) == (("p",), 1)
    line = feature("LineString", [[11.5, 48.1], [11.5, 48.2]], coordTimes=[at, later])
    lines = feature("MultiLineString", [[[11.5, 48.1]], [[11.5, 48.2]]], coordTimes=[[at], [later]])
    for text in (collection(line), json.dumps(line)):
        assert rows(read([put("l.json", text)])) == rows(found)
    assert read([put("m.geojson", collection(line, lines))]).n_traces == 3
    people = [feature("Point", [11.5, 48.1], user=u, when=1704096000) for u in ("ann", "bob")]
    with pytest.raises(InputError, match=r"no feature has a time; .*`columns='time=PROPERTY'`"):
        read([put("w.geojson", collection(*people))])
    assert read([put("w.geojson", collection(*people))], columns="time=when").streams == ("ann", "bob")


# --- values -----------------------------------------------------------------------------------------------


def test_nightscout_entries(put):
    entries = [
        {"_id": "a", "type": "sgv", "date": 1704096300000, "dateString": "2024-01-01T08:05:00.000Z", "sgv": 125},
        {"_id": "b", "type": "mbg", "date": 1704096200000, "mbg": 99},
        {"_id": "c", "type": "sgv", "dateString": "2024-01-01T08:00:00.000Z", "sgv": 120, "direction": "Flat"},
        {"_id": "d", "type": "sgv", "date": 1704096600000, "sgv": 5},
    ]
    found = read([put("entries.json", json.dumps(entries))])
    assert (rows(found), found.unit) == ([(300.0, 125.0), (0.0, 120.0)], "mg/dL")
    line = '"2024-01-01T08:05:00.000Z",1704096300000,125,"Flat","xDrip"\n'
    for name, text in (("entries.csv", line), ("entries.tsv", line.replace(",", "\t"))):
        assert rows(read([put(name, text)])) == [(300.0, 125.0)]


HEALTH = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE HealthData [
<!-- HealthKit Export Version: 12 -->
<!ELEMENT HealthData (ExportDate,Me,(Record|Workout)*)>
<!ATTLIST HealthData
  locale CDATA #REQUIRED
>
<!ATTLIST VisionPrescription
  type             CDATA #REQUIRED
<!ELEMENT Broken EMPTY>
]>
<HealthData locale="en_GB">
 <ExportDate value="2024-01-02 08:00:00 +0100"/>
 <Me HKCharacteristicTypeIdentifierDateOfBirth="1980-01-01"/>
 <Record type="HKQuantityTypeIdentifierHeartRate" sourceName="Ann\u2019s Watch" unit="count/min"
   startDate="2024-01-01 09:00:00 +0100" endDate="2024-01-01 09:00:00 +0100" value="61">
  <MetadataEntry key="HKMetadataKeyHeartRateMotionContext" value="1"/>
 </Record>
 <Record type="HKQuantityTypeIdentifierHeartRate" sourceName="W\x0b" unit="count/min"
   startDate="2024-01-01 03:05:00 -0500" endDate="2024-01-01 03:05:00 -0500" value="62.5"/>
 <Record type="HKQuantityTypeIdentifierStepCount" sourceName="Phone" unit="count"
   startDate="2024-01-01 09:00:00 +0100" endDate="2024-01-01 09:05:00 +0100" value="120"/>
 <Record type="HKCategoryTypeIdentifierSleepAnalysis" sourceName="Watch"
   startDate="2024-01-01 09:00:00 +0100" endDate="2024-01-01 09:30:00 +0100" value="HKCategoryValueSleepAnalysisAwake"/>
 <Record type="HKCategoryTypeIdentifierSleepAnalysis" sourceName="Watch"
   startDate="2024-01-01 09:30:00 +0100" endDate="2024-01-01 09:40:00 +0100" value="HKCategoryValueSleepAnalysisInBed"/>
 <Record type="HKQuantityTypeIdentifierBloodGlucose" sourceName="CGM" unit="mmol&lt;180.1558800000541&gt;/L"
   startDate="2024-01-01 09:00:00 +0100" endDate="2024-01-01 09:00:00 +0100" value="5.5"/>
</HealthData>
"""


def test_apple_health_asks_which_type_and_reads_it(put, tmp_path):
    path = put("export.xml", HEALTH)
    with pytest.raises(InputError, match=r"which type of record\? say `columns='value=HeartRate'`; there is Heart"):
        read([path])
    heart = read([path], columns="value=HeartRate")
    assert (rows(heart), heart.unit, heart.streams) == ([(0.0, 61.0), (300.0, 62.5)], "bpm", ("health",))
    glucose = read([path], columns="value=BloodGlucose")
    assert (rows(glucose), glucose.unit) == ([(0.0, 5.5)], "mmol/L")
    sleep = read([path], columns="value=SleepAnalysis")
    assert (sleep.kind, sleep.names) == ("name", ("Awake", "InBed"))
    with pytest.raises(InputError, match="no column 'Mood' for value; there is type of record"):
        read([path], columns="value=Mood")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("apple_health_export/export.xml", HEALTH)
        archive.writestr("apple_health_export/export_cda.xml", "<ClinicalDocument/>")
        archive.writestr("apple_health_export/workout-routes/r.gpx", STRAVA)
    assert rows(read([str(tmp_path / "export.zip")], columns="value=HeartRate")) == rows(heart)


def test_no_xml_may_have_entities(put):
    for text in (
        HEALTH.replace("<!ELEMENT Broken", '<!ENTITY x "y">\n<!ELEMENT Broken'),
        HEALTH.replace("<!DOCTYPE", "<!-- HealthData" + "x" * (1 << 20) + "--><!DOCTYPE"),
        ESPI.replace("<feed", '<!DOCTYPE feed [<!ENTITY x "y">]><feed'),
    ):
        with pytest.raises(InputError, match="refused"):
            read([put("x.xml", text)], columns="value=HeartRate")


ESPI = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:espi="http://naesb.org/espi">
 <entry><link rel="self" href="/espi/1_1/resource/UsagePoint/1/MeterReading/2/IntervalBlock/3"/><content>
  <espi:IntervalBlock>
   <espi:interval><espi:duration>86400</espi:duration><espi:start>1704096000</espi:start></espi:interval>
   <espi:IntervalReading><espi:ReadingQuality><espi:quality>0</espi:quality></espi:ReadingQuality>
    <espi:timePeriod><espi:duration>900</espi:duration><espi:start>1704096000</espi:start></espi:timePeriod>
    <espi:value>974</espi:value></espi:IntervalReading>
   <espi:IntervalReading>
    <espi:timePeriod><espi:duration>900</espi:duration><espi:start>1704096900</espi:start></espi:timePeriod>
    <espi:value>900</espi:value></espi:IntervalReading>
  </espi:IntervalBlock></content></entry>
 <entry><content><espi:ReadingType><espi:accumulationBehaviour>4</espi:accumulationBehaviour>
  <espi:powerOfTenMultiplier>-3</espi:powerOfTenMultiplier><espi:uom>72</espi:uom></espi:ReadingType></content></entry>
</feed>
"""


def test_green_button(put):
    found = read([put("usage.xml", ESPI)])
    assert (rows(found), found.unit, found.streams) == ([(0.0, 0.974), (900.0, 0.9)], "Wh", ("usage",))
    second = ESPI[ESPI.index(" <entry>") : ESPI.index(" <entry><content>")].replace("UsagePoint/1", "UsagePoint/7")
    two = read([put("two.xml", ESPI.replace(" <entry><content>", second + " <entry><content>", 1))])
    assert two.streams == ("1/2", "7/2")
    with pytest.raises(InputError, match="XML of no format that is known"):
        read([put("x.xml", "<html><body>no</body></html>")])


HISTORY = """entity_id,state,last_changed
sensor.power,120.5,2024-01-01T08:00:00.000Z
person.ann,home,2024-01-01T08:00:00.000Z
sensor.power,unavailable,2024-01-01T08:01:00.000Z
person.ann,Work,2024-01-01T08:30:00.000Z
sensor.power,99,2024-01-01T08:05:00.000Z
person.ann,home,2024-01-01T09:30:00.000Z
person.ann,Work,2024-01-01T10:30:00.000Z
"""


def test_home_assistant_history(put):
    path = put("history.csv", HISTORY)
    with pytest.raises(
        InputError, match=r"which entity\? say `columns='value=person.ann'`; there is person.ann, sensor.power"
    ):
        read([path])
    power = read([path], columns="value=sensor.power")
    assert (rows(power), power.account.count("missing")) == ([(0.0, 120.5), (300.0, 99.0)], 1)
    zones = read([path], columns="value=person.ann")
    assert (zones.kind, zones.names, zones.frame.height) == ("name", ("Work", "home"), 4)


NEW_DB = """
CREATE TABLE states_meta (metadata_id INTEGER PRIMARY KEY, entity_id VARCHAR(255));
CREATE TABLE state_attributes (attributes_id INTEGER PRIMARY KEY, hash BIGINT, shared_attrs TEXT);
CREATE TABLE states (state_id INTEGER PRIMARY KEY, entity_id CHAR(0), state VARCHAR(255), attributes CHAR(0),
 last_changed CHAR(0), last_changed_ts FLOAT, last_updated CHAR(0), last_updated_ts FLOAT, old_state_id INTEGER,
 attributes_id INTEGER, metadata_id INTEGER);
INSERT INTO states_meta VALUES (1, 'sensor.power'), (2, 'device_tracker.ann_phone');
INSERT INTO state_attributes VALUES (1, 0, '{"latitude":48.1,"longitude":11.5,"gps_accuracy":9}'), (2, 0, '{}');
INSERT INTO states (state, last_updated_ts, metadata_id, attributes_id) VALUES
 ('120.5', 1704096000.25, 1, NULL), ('home', 1704096000, 2, 1), ('unknown', 1704096060, 1, NULL),
 ('99', 1704096300, 1, NULL), ('not_home', 1704096300, 2, 2), ('home', 1704096600, 2, 1),
 ('not_home', 1704096900, 2, 2);
"""
OLD_DB = """
CREATE TABLE states (state_id INTEGER PRIMARY KEY, domain TEXT, entity_id TEXT, state TEXT, attributes TEXT,
 last_changed DATETIME, last_updated DATETIME);
INSERT INTO states (entity_id, state, attributes, last_updated) VALUES
 ('sensor.power', '120.5', '{}', '2024-01-01 08:00:00.000000'), ('sensor.power', '99', '{}', '2024-01-01 08:05:00.5');
"""


def database(path, script):
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    return str(path)


def test_home_assistant_recorder(tmp_path):
    path = database(tmp_path / "home-assistant_v2.db", NEW_DB)
    before = Path(path).read_bytes(), sorted(p.name for p in tmp_path.iterdir())
    says = r"say `columns='value=device_tracker.ann_phone'`; .* where a tracker was: `columns='lat=device_tracker.ann"
    with pytest.raises(InputError, match=says):
        read([path])
    power = read([path], columns="value=sensor.power")
    assert (rows(power), power.account.count("missing")) == ([(0.25, 120.5), (300.0, 99.0)], 1)
    assert rows(read([path], columns="lat=device_tracker.ann_phone")) == [(0.0, 48.1, 11.5), (600.0, 48.1, 11.5)]
    assert read([path], columns="value=device_tracker.ann_phone").names == ("home", "not_home")
    assert (Path(path).read_bytes(), sorted(p.name for p in tmp_path.iterdir())) == before
    assert rows(read([database(tmp_path / "old.db", OLD_DB)])) == [(0.0, 120.5), (300.5, 99.0)]
    with pytest.raises(InputError, match="without the tables of a Home Assistant recorder"):
        read([database(tmp_path / "other.db", "CREATE TABLE x (y)")])


def test_meters_at_their_p1_port(put):
    """HomeWizard's and DSMR-reader's registers count on; DSMR-reader's hours do not."""
    lines = ["time,Import T1 kWh,Import T2 kWh,Export T1 kWh,Export T2 kWh,L1 max W"]
    lines += ["2024-01-01 08:00,10.0,20.0,1.0,2.0,99", "2024-01-01 08:15,10.4,20.1,1.0,2.3,99"]
    lines += [
        "2024-01-01 08:30,10.4,20.35,1.2,2.5,",
        "2024-01-01 08:45,0.0,0.0,0,0,1",
        "2024-01-01 09:00,0.1,0.0,0,0,1",
    ]
    found = read([put("P1e-2024.csv", "\n".join(lines))])
    assert (rows(found), found.unit) == ([(900.0, 0.5), (1800.0, 0.25), (3600.0, 0.1)], "kWh")
    assert found.account.count("registers") == 3
    assert rows(read([put("P1e-2024.csv", "\n".join(lines))], columns="value=L1 max W"))[0] == (0.0, 99.0)
    text = (
        "id,timestamp,electricity_delivered_1,electricity_returned_1,electricity_delivered_2,electricity_returned_2\n"
    )
    text += "1,2024-01-01 08:00:00+00,1.5,0,2.5,0\n2,2024-01-01 08:00:10+00,1.5,0,2.625,0\n"
    assert rows(read([put("readings.csv", text)])) == [(10.0, 0.125)]
    text = "hour_start;electricity1;electricity2;gas\n2024-01-01T08:00:00Z;0,5;0,25;0\n2024-01-01T09:00:00Z;0;1;0\n"
    assert rows(read([put("hours.csv", text)])) == [(0.0, 0.75), (3600.0, 1.0)]


def test_parquet_and_feather_by_type(tmp_path):
    when = [datetime(2024, 1, 1, 8, 0, tzinfo=UTC), datetime(2024, 1, 1, 8, 5, tzinfo=UTC)]
    frame = pl.DataFrame({"at": when, "power_kW": [0.1 + 0.2, 1e-7], "tags": [["a"], ["b"]]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.feather")
    for name in ("a.parquet", "a.feather"):
        found = read([str(tmp_path / name)])
        assert (rows(found), found.unit) == ([(0.0, 0.1 + 0.2), (300.0, 1e-7)], "kW")
    local = frame.with_columns(pl.col("at").dt.replace_time_zone(None))
    local.write_parquet(tmp_path / "l.parquet")
    assert rows(read([str(tmp_path / "l.parquet")], tz="Europe/Berlin"))[0][0] == -3600
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(99))
    with pytest.raises(InputError, match="Feather version 1; write it again"):
        read([str(tmp_path / "old.feather")])


# --- tables -----------------------------------------------------------------------------------------------


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
    model = fit_model(found, FitOptions(hold_out=0.0))
    assert sorted(model.states.names) == ["Work", "home"]
    stays = model.chain.transition[model.states.names.index("home"), model.states.names.index("home")]
    assert stays == pytest.approx(7 / 8, abs=0.01)
    assert model.states.distances().tolist() == [[0, 1], [1, 0]]
    assert model.distances.raw_mean == 0
    with pytest.raises(InputError, match="`width` is for numbers"):
        fit_model(found, FitOptions(width=2.0))


# --- packed, and new ----------------------------------------------------------------------------------------


def test_a_folder_of_packed_tracks_is_read_as_it_is(put, tmp_path):
    put("ann/a.gpx.gz", gzip.compress(STRAVA.encode()))
    put("ann/b.gpx", KOMOOT)
    found = read([str(tmp_path / "ann")])
    assert (found.streams, found.n_traces) == (("ann",), 2)
    with zipfile.ZipFile(tmp_path / "strava.zip", "w") as archive:
        archive.write(tmp_path / "ann/a.gpx.gz", "activities/1.gpx.gz")
        archive.writestr("../../evil.gpx", KOMOOT)
        archive.writestr("profile.txt", "x")
    assert read([str(tmp_path / "strava.zip")]).n_traces == 2
    assert not (tmp_path.parent.parent / "evil.gpx").exists()


def test_what_else_lies_in_a_folder_is_left_alone(put, tmp_path):
    """Settings, a store beside a policy, a page: endings that exports have too."""
    put("ann/a.gpx", KOMOOT)
    put("ann/settings.json", '{"theme": "dark"}')
    put("ann/page.xml", "<html/>")
    database(tmp_path / "ann/policy.veil.db", "CREATE TABLE x (y)")
    assert read([str(tmp_path / "ann")]).frame.height == 2
    put(
        "ann/Records.json",
        json.dumps(
            {"locations": [{"timestamp": "2024-01-01T09:00:00Z", "latitudeE7": 481000000, "longitudeE7": 115000000}]}
        ),
    )
    assert read([str(tmp_path / "ann")]).frame.height == 3


def test_what_unpacks_without_end_is_refused(put, monkeypatch):
    monkeypatch.setattr("veilstream.data.unpack.SMALL", 1000)
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        read([put("x.csv.gz", gzip.compress(b"time,value\n" + b"0" * 10_000_000))])
    with pytest.raises(InputError, match="damaged or locked"):
        read([put("y.csv.gz", gzip.compress(b"time,value\n" * 99)[:-9])])


NEW_READER = '''
"""Dots: a stamp, two dots, a value."""
from veilstream.data.readers.reader import Reader
from veilstream.data.readers.records import VALUES, table_of


def read_dots(path, name, options):
    return table_of((line.split("..") for line in path.read_text().splitlines()), VALUES, name, options, "no dots")


READER = Reader("Dots", (".dots",), read_dots, lambda text: ".." in text, "")
'''


@pytest.mark.slow
def test_a_new_reader_is_one_file_and_nothing_else(tmp_path):
    shutil.copytree(
        Path(veilstream.__file__).parent, tmp_path / "veilstream", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "veilstream/data/readers/dots.py").write_text(NEW_READER)
    (tmp_path / "x.dots").write_text("".join(f"{1704096000 + 300 * k}..{k % 3}\n" for k in range(60)))
    run = [sys.executable, "-c", "from veilstream.apps.cli import main; main()", "fit"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run([*run, str(tmp_path / "x.dots"), "--json"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"] == 60
    helped = subprocess.run([*run, "--help"], capture_output=True, text=True, env=env).stdout
    assert "Dots (.dots)" in re.sub(r"\s+", " ", helped)
