"""Home Assistant: the CSV of its history page (`entity_id,state,last_changed`), or its recorder's database
(`home-assistant_v2.db`, SQLite), opened for reading only; one entity of it.

Numbers are values, other states (home, Work) are names; `unknown` and `unavailable` are missing. `columns` of a
database: value=ENTITY reads its states, lat=ENTITY where it was. Databases are known by the tables that they have since
2023.4 (states_meta), and before that (states.entity_id).
"""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from veilstream.data.columns import listing
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import PLACES, VALUES, Record, chosen, moment, table_of, text_of, utc
from veilstream.errors import InputError

HEADER = ["entity_id", "state", "last_changed"]
NOTHING = ("", "unknown", "unavailable", "None")
MAGIC = b"SQLite format 3\0"
MOVERS = ("device_tracker.", "person.")


def _state(text: object) -> str | None:
    """The state of an entity; None where it is unknown or unavailable."""
    return None if text is None or str(text).strip() in NOTHING else str(text)


# --- the history page -------------------------------------------------------------------------------------


def read_history(path: Path, name: str, options: ReadOptions) -> Table:
    found = Counter(row[0] for row in _rows(path, name) if row[0])
    entity = chosen(found, options.columns.get("value"), name, "entity")
    own = (row for row in _rows(path, name) if row[0] == entity)
    records = ((moment(row[2].strip() or None), _state(row[1])) for row in own)
    return table_of(records, VALUES, name, options, "no reading with a time in it")


def _rows(path: Path, name: str) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if number > 1 and row:
                if len(row) != len(HEADER):
                    raise InputError(f"{name} line {number}: {len(row)} fields where the header names {len(HEADER)}")
                yield row


# --- the database -----------------------------------------------------------------------------------------


def read_recorder(path: Path, name: str, options: ReadOptions) -> Table:
    try:
        with closing(_opened(path)) as db:
            return _read(db, name, options)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError):
        raise InputError(f"{name}: not readable as a database of Home Assistant; copy it while it is stopped") from None


def _opened(path: Path) -> sqlite3.Connection:
    """Nothing is written, not even beside it: what waits in a -wal file is read only where there is one."""
    waiting = path.with_name(path.name + "-wal").exists()
    db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro{'' if waiting else '&immutable=1'}", uri=True)
    db.execute("PRAGMA query_only = 1")
    db.execute("PRAGMA trusted_schema = 0")
    return db


def _read(db: sqlite3.Connection, name: str, options: ReadOptions) -> Table:
    whose, source, time, shared = _schema(db, name)
    counts = db.execute(f"SELECT {whose}, count(*) FROM {source} GROUP BY 1")
    found = {str(entity): int(n) for entity, n in counts if entity is not None}
    entity = _entity(found, options, name)
    rows = db.execute(f"SELECT {time}, s.state, {shared} FROM {source} WHERE {whose} = ? ORDER BY s.state_id", [entity])
    if "lat" in options.columns or ("value" not in options.columns and entity.startswith(MOVERS)):
        places = ((_when(t), *_place(said)) for t, _, said in rows)
        return table_of(places, PLACES, name, options, "no states with a time and a place in it")
    records = ((_when(t), _state(said)) for t, said, _ in rows)
    return table_of(records, VALUES, name, options, "no states with a time in it")


def _schema(db: sqlite3.Connection, name: str) -> tuple[str, str, str, str]:
    """Where this version of the recorder keeps the entity, the states, their times and their attributes, in SQL."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    has = {row[1] for row in db.execute("PRAGMA table_info(states)")} if "states" in tables else set()
    new = "states_meta" in tables and "metadata_id" in has
    if not (new or "entity_id" in has):
        raise InputError(f"{name}: a database without the tables of a Home Assistant recorder")
    source = "states s" + (" JOIN states_meta m ON m.metadata_id = s.metadata_id" if new else "")
    shared = "s.attributes" if "attributes" in has else "NULL"
    if "state_attributes" in tables and "attributes_id" in has:
        source += " LEFT JOIN state_attributes a ON a.attributes_id = s.attributes_id"
        shared = "a.shared_attrs"
    time = "s.last_updated_ts" if "last_updated_ts" in has else "s.last_updated"
    return "m.entity_id" if new else "s.entity_id", source, time, shared


def _entity(found: dict[str, int], options: ReadOptions, name: str) -> str:
    told = options.columns.get("lat") or options.columns.get("value")
    movers = [entity for entity in found if entity.startswith(MOVERS)]
    try:
        return chosen(found, told, name, "entity")
    except InputError as fault:
        if told is not None or not movers:
            raise
        where = listing(sorted(movers, key=lambda entity: -found[entity])[:1])
        raise InputError(f"{fault}; where a tracker was: `columns='lat={where}'`") from None


def _place(attributes: object) -> Record:
    """Latitude and longitude among the attributes of a state."""
    try:
        said = json.loads(attributes) if isinstance(attributes, str) else {}
    except (ValueError, RecursionError):
        said = {}
    return [text_of(said.get(key)) if isinstance(said, dict) else None for key in ("latitude", "longitude")]


def _when(t: object) -> str | None:
    """Seconds since 1970, or before 2023 a text without an offset, in UTC."""
    if isinstance(t, float | int):
        return utc(t)
    return None if t is None else moment(f"{str(t).strip()}+00:00")


READERS = (
    Reader(
        "Home Assistant history",
        (".csv",),
        read_history,
        lambda text: text.replace('"', "").startswith(",".join(HEADER)),
    ),
    Reader("Home Assistant recorder", (".db", ".sqlite"), read_recorder, magic=(MAGIC,)),
)
