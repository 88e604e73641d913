"""Zones by name: a release says home, work or away, where a map would show a point.

A file of zones has the columns name, lat, lon, radius_m (as OwnTracks and Home Assistant have them). A state is in the
nearest zone whose circle holds its centre, or away; a reading is where its state is. The cost of a name is that it is
wrong, in % of steps.
"""

import csv
from pathlib import Path

import numpy as np

from veilstream.data.cost import PERCENT, TABLE, Cost
from veilstream.data.states import StateSpace, named
from veilstream.errors import InputError

COLUMNS = ("name", "lat", "lon", "radius_m")
AWAY = "away"


def is_zones(show: str | None) -> bool:
    """Whether what is to be shown is a file of zones."""
    return show is not None and (show.lower().endswith(".csv") or Path(show).is_file())


def cost_of_names(states: StateSpace, path: str | Path) -> Cost:
    """d(x, name) = 100 [x is in another zone], for the zones of the file."""
    if not states.is_map:
        raise InputError("`show` takes a file of zones for places alone; values and names are shown as they are")
    zones = read_zones(path)
    centres = np.array([zone[1:3] for zone in zones])
    far = StateSpace("places", centres, tuple(zone[0] for zone in zones), "km").distances_from(states.coordinates)
    inside = np.where(1000 * far <= [zone[3] for zone in zones], far, np.inf)
    own = [zones[k][0] if np.isfinite(row[k]) else AWAY for row in inside for k in [int(row.argmin())]]
    names = named(sorted({*own, AWAY}))
    of = np.array([names.names.index(name) for name in own])
    return Cost(states, names, TABLE, PERCENT * (of[:, None] != np.arange(len(names))), "%")


def read_zones(path: str | Path) -> list[tuple[str, float, float, float]]:
    """Name, latitude, longitude, radius in metres."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise InputError(f"{path}: the zones of `show` cannot be read ({type(fault).__name__})") from None
    if not rows or tuple(rows[0]) != COLUMNS or len(rows) < 2:
        raise InputError(f"{path}: zones have the columns {','.join(COLUMNS)} and a line each")
    found: list[tuple[str, float, float, float]] = []
    for number, row in enumerate(rows[1:], 2):
        try:
            name, (lat, lon, radius) = row[0], map(float, row[1:])
            fits = abs(lat) <= 90 and abs(lon) <= 180 and 0 < radius < np.inf
        except ValueError:
            fits = False
        if not fits or not name or name in (AWAY, *(zone[0] for zone in found)):
            raise InputError(
                f"{path} line {number}: a zone has a name of its own (not {AWAY!r}), a place in degrees, a radius > 0"
            )
        found.append((name, lat, lon, radius))
    return found
