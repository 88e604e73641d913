"""What tests of exports share: made-up files as their programs write them, and what was read of one."""

import sqlite3
from contextlib import closing

EIGHT = 1704096000.0  # 2024-01-01T08:00:00Z


def rows(readings):
    """(seconds after eight, place or value) of every reading, in the order of the file."""
    frame = readings.frame.select("t", *readings.columns)
    return [(t / 1e6 - EIGHT, *found) for t, *found in frame.iter_rows()]


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


def database(path, script):
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    return str(path)
