"""Releases as a GPX file: a track for each stream, its points and their times, nothing else of a release."""

from collections.abc import Iterable
from datetime import UTC, datetime
from xml.etree import ElementTree as xml

from veilstream.gateway.wire import Release
from veilstream.units import printable

NAMESPACE = "http://www.topografix.com/GPX/1/1"


def gpx(releases: Iterable[Release]) -> bytes:
    """In the order in which they come; those without a place are left out."""
    root = xml.Element("gpx", xmlns=NAMESPACE, version="1.1", creator="veilstream")
    segments: dict[str, xml.Element] = {}
    for r in releases:
        if r.lat is None:
            continue
        if r.stream not in segments:
            track = xml.SubElement(root, "trk")
            xml.SubElement(track, "name").text = printable(r.stream)
            segments[r.stream] = xml.SubElement(track, "trkseg")
        point = xml.SubElement(segments[r.stream], "trkpt", lat=repr(r.lat), lon=repr(r.lon))
        xml.SubElement(point, "time").text = when(r.t)
    xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(root, "unicode")}\n'.encode()


def when(t: int | float | str) -> str:
    """A grid time as the format has it."""
    return t if isinstance(t, str) else datetime.fromtimestamp(t, UTC).isoformat().replace("+00:00", "Z")
