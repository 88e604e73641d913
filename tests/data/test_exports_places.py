"""Exports of places, a few made-up lines of each as its program writes them: `read` without a word, or with the word
that its message says."""

import json

import pytest

from exportkit import KOMOOT, STRAVA, rows
from veilstream.data.sources import read
from veilstream.errors import InputError


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
