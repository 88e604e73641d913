# ruff: noqa: E501
"""A small good file of every format: three readings of one stream, the second earlier than the first."""

import io
import sqlite3
from contextlib import closing

import polars as pl

# by the name of the reader
SAMPLES = {
    "Apple Health": """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE HealthData [
<!-- HealthKit Export Version: 12 -->
<!ELEMENT HealthData (ExportDate,Me,(Record)*)>
]>
<HealthData locale="en_GB">
 <ExportDate value="2024-01-02 08:00:00 +0000"/>
 <Record type="HKQuantityTypeIdentifierHeartRate" sourceName="Watch" unit="count/min"
  startDate="2024-01-01 08:00:10 +0000" endDate="2024-01-01 08:00:10 +0000" value="61.112233"/>
 <Record type="HKQuantityTypeIdentifierHeartRate" sourceName="Watch" unit="count/min"
  startDate="2024-01-01 08:00:04 +0000" endDate="2024-01-01 08:00:04 +0000" value="62.223344"/>
 <Record type="HKQuantityTypeIdentifierHeartRate" sourceName="Watch" unit="count/min"
  startDate="2024-01-01 08:00:15 +0000" endDate="2024-01-01 08:00:15 +0000" value="63.334455"/>
</HealthData>
""",
    "CSV": """stream,time,lat,lon
alice,2024-01-01T08:00:10Z,-47.112233,-125.445566
alice,2024-01-01T08:00:04Z,-47.223344,-125.556677
alice,2024-01-01T08:00:15Z,-47.334455,-125.667788
""",
    "Feather": """time,value
2024-01-01T08:00:10,101.112233
2024-01-01T08:00:04,102.223344
2024-01-01T08:00:15,103.334455
""",
    "GPX": """<?xml version="1.0"?>
<gpx version="1.1" creator="veilstream">
<trk><trkseg>
<trkpt lat="-47.112233" lon="-125.445566"><time>2024-01-01T08:00:10Z</time></trkpt>
<trkpt lat="-47.223344" lon="-125.556677"><time>2024-01-01T08:00:04Z</time></trkpt>
<trkpt lat="-47.334455" lon="-125.667788"><time>2024-01-01T08:00:15Z</time></trkpt>
</trkseg></trk>
</gpx>
""",
    "GeoJSON": """{"type": "FeatureCollection", "features": [
{"type": "Feature", "geometry": {"type": "Point", "coordinates": [-125.445566, -47.112233]},
 "properties": {"time": "2024-01-01T08:00:10Z"}},
{"type": "Feature", "geometry": {"type": "Point", "coordinates": [-125.556677, -47.223344, 12]},
 "properties": {"time": "2024-01-01T08:00:04Z"}},
{"type": "Feature", "geometry": {"type": "Point", "coordinates": [-125.667788, -47.334455]},
 "properties": {"time": "2024-01-01T08:00:15Z"}}]}
""",
    "GeoLife": """Geolife trajectory
WGS 84
Altitude is in Feet
Reserved 3
0,2,255,My Track,0,0,2,8421376
0
-47.112233,-125.445566,0,492,39744.12,2008-10-23,02:53:10
-47.223344,-125.556677,0,492,39744.12,2008-10-23,02:53:04
-47.334455,-125.667788,0,492,39744.12,2008-10-23,02:53:15
""",
    "Google Takeout": """{"locations": [
  {"timestamp": "2024-01-01T08:00:10.123Z", "latitudeE7": -471122330, "longitudeE7": -1254455660, "accuracy": 13},
  {"timestamp": "2024-01-01T08:00:04Z", "latitudeE7": -472233440, "longitudeE7": -1255566770, "accuracy": 13},
  {"timestamp": "2024-01-01T08:00:15Z", "latitudeE7": -473344550, "longitudeE7": -1256677880, "accuracy": 13}]}
""",
    "Google Timeline": """{"semanticSegments": [{
  "startTime": "2024-01-01T08:00:00.000+01:00", "endTime": "2024-01-01T10:00:00.000+01:00",
  "timelinePath": [
    {"point": "-47.112233°, -125.445566°", "time": "2024-01-01T08:00:10.000+01:00"},
    {"point": "-47.223344°, -125.556677°", "time": "2024-01-01T08:00:04.000+01:00"},
    {"point": "-47.334455°, -125.667788°", "time": "2024-01-01T08:00:15.000+01:00"}]}]}
""",
    "Green Button": """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
<entry><content><ReadingType xmlns="http://naesb.org/espi">
<powerOfTenMultiplier>0</powerOfTenMultiplier><uom>72</uom></ReadingType></content></entry>
<entry><content><IntervalBlock xmlns="http://naesb.org/espi">
<interval><duration>86400</duration><start>1704096000</start></interval>
<IntervalReading><timePeriod><duration>5</duration><start>1704096010</start></timePeriod><value>101.112233</value>
</IntervalReading>
<IntervalReading><timePeriod><duration>5</duration><start>1704096004</start></timePeriod><value>102.223344</value>
</IntervalReading>
<IntervalReading><timePeriod><duration>5</duration><start>1704096015</start></timePeriod><value>103.334455</value>
</IntervalReading>
</IntervalBlock></content></entry>
</feed>
""",
    "Home Assistant history": """entity_id,state,last_changed
sensor.power,101.112233,2024-01-01T08:00:10.000Z
sensor.power,102.223344,2024-01-01T08:00:04.000Z
sensor.power,103.334455,2024-01-01T08:00:15.000Z
""",
    "Home Assistant recorder": """CREATE TABLE states_meta (metadata_id INTEGER PRIMARY KEY, entity_id TEXT);
CREATE TABLE state_attributes (attributes_id INTEGER PRIMARY KEY, shared_attrs TEXT);
CREATE TABLE states (state_id INTEGER PRIMARY KEY, metadata_id INTEGER, state TEXT, last_updated_ts REAL,
 attributes_id INTEGER);
INSERT INTO states_meta VALUES (1, 'sensor.power');
INSERT INTO states VALUES (1, 1, '101.112233', 1704096010.0, NULL);
INSERT INTO states VALUES (2, 1, '102.223344', 1704096004.0, NULL);
INSERT INTO states VALUES (3, 1, '103.334455', 1704096015.0, NULL);
""",
    "JSON lines": """{"stream": "alice", "t": 1704096010, "lat": -47.112233, "lon": -125.445566}
{"stream": "alice", "t": 1704096004, "lat": -47.223344, "lon": -125.556677}
{"stream": "alice", "t": 1704096015, "lat": -47.334455, "lon": -125.667788}
""",
    "Nightscout": """[{"_id":"a","type":"sgv","date":1704096010000,"dateString":"2024-01-01T08:00:10.000Z","sgv":101.112233},
{"_id":"b","type":"sgv","date":1704096004000,"dateString":"2024-01-01T08:00:04.000Z","sgv":102.223344},
{"_id":"c","type":"sgv","date":1704096015000,"dateString":"2024-01-01T08:00:15.000Z","sgv":103.334455}]
""",
    "OwnTracks recorder": """2024-01-01T08:00:11Z\t*                 \t{"_type":"location","tst":1704096010,"lat":-47.112233,"lon":-125.445566}
2024-01-01T08:00:12Z\t*                 \t{"_type":"location","tst":1704096004,"lat":-47.223344,"lon":-125.556677}
2024-01-01T08:00:16Z\t*                 \t{"_type":"location","tst":1704096015,"lat":-47.334455,"lon":-125.667788}
""",
    "P1 (DSMR)": """hour_start,electricity1,electricity2,electricity1_returned,electricity2_returned
2024-01-01T08:00:10Z,101.112233,,0,0
2024-01-01T08:00:04Z,102.223344,,0,0
2024-01-01T08:00:15Z,103.334455,,0,0
""",
    "Parquet": """time,value
2024-01-01T08:00:10,101.112233
2024-01-01T08:00:04,102.223344
2024-01-01T08:00:15,103.334455
""",
}  # fmt: skip


def packed_bytes(reader, text: str) -> bytes:
    """The file that says what a text does, in a format that is no text."""
    if reader.name in ("Parquet", "Feather"):
        frame, out = pl.read_csv(text.encode(), try_parse_dates=True), io.BytesIO()
        frame.write_parquet(out) if reader.name == "Parquet" else frame.write_ipc(out, compression="lz4")
        return out.getvalue()
    if reader.name == "Home Assistant recorder":
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript(text)
            return db.serialize()
    return text.encode()
