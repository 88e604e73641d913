"""Home Assistant, its recorder's database (`home-assistant_v2.db`, SQLite), one entity of it, opened for reading only.

`columns`: value=ENTITY reads its states (numbers, or names such as zones); lat=ENTITY reads where it was.
Known by the tables that it has since 2023.4 (states_meta), and before that (states.entity_id).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from veilstream.data.columns import listing
from veilstream.data.readers.home_assistant import state
from veilstream.data.readers.json_stream import text_of
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.records import PLACES, VALUES, Record, chosen, moment, table_of, utc
from veilstream.errors import InputError

MAGIC = b"SQLite format 3\0"
MOVERS = ("device_tracker.", "person.")


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
        return table_of(_places(rows), PLACES, name, options, "no states with a time and a place in it")
    records = ((_when(t), state(None if said is None else str(said))) for t, said, _ in rows)
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


def _places(rows: Iterator[tuple[object, object, object]]) -> Iterator[Record]:
    for t, _, attributes in rows:
        try:
            said = json.loads(attributes) if isinstance(attributes, str) else {}
        except (ValueError, RecursionError):
            said = {}
        said = said if isinstance(said, dict) else {}
        yield _when(t), text_of(said.get("latitude")), text_of(said.get("longitude"))


def _when(t: object) -> str | None:
    """Seconds since 1970, or before 2023 a text without an offset, in UTC."""
    if isinstance(t, float | int):
        return utc(t)
    return None if t is None else moment(f"{str(t).strip()}+00:00")


READER = Reader(
    "Home Assistant recorder",
    (".db", ".sqlite"),
    read_recorder,
    lambda text: False,
    magic=(MAGIC,),
)
