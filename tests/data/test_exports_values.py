"""Exports of values, a few made-up lines of each as its program writes them: `read` without a word, or with the word
that its message says."""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from exportkit import STRAVA, database, rows
from veilstream.data.sources import read
from veilstream.errors import InputError


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
