"""Tables with types, long or wide, as one in CSV is: parquet, feather, and a DataFrame. Polars reads them.

Files are tried by a process apart first: at a damaged one polars may panic, or end its process. A panic is told on
standard error by polars' own threads, with numbers out of the file; an abort cannot be caught at all. Both happen
there, where nobody sees them, and here is one line. The process is started once, and asked file by file; where none can
be started the file is read without.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl

from veilstream.data.columns import goes_by, guess_layout
from veilstream.data.readers.reader import Reader, ReadOptions, Table
from veilstream.data.readers.table import TextTable, typed
from veilstream.errors import InputError

PARQUET, FEATHER, OLD = b"PAR1", b"ARROW1", b"FEA1"  # what they begin with; the last is Feather of before 2020
LONGEST_FOOTER = 4 << 20
MOST_COLUMNS = 5_000
INDEX = "__index_level_0__"  # what pandas calls an index without a name
_LOCAL = "%Y-%m-%dT%H:%M:%S%.6f"


def read_parquet(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open("rb") as stream:
        stream.seek(-8, 2)
        footer = int.from_bytes(stream.read(4), "little")
    if footer > LONGEST_FOOTER:
        raise InputError(f"{name}: a description of {footer:,} bytes, of very many columns, or damaged; write it anew")
    return _read(path, name, "Parquet", options)


def read_feather(path: Path, name: str, options: ReadOptions) -> Table:
    with path.open("rb") as stream:
        if stream.read(4) == OLD:
            raise InputError(f"{name}: Feather version 1; write it again as version 2, or as parquet")
    return _read(path, name, "Feather", options)


def _read(path: Path, name: str, what: str, options: ReadOptions) -> Table:
    if not survives(path):
        raise InputError(f"{name}: not readable as {what}, damaged")
    rows = _scanned(path)
    if (columns := len(rows.collect_schema())) > MOST_COLUMNS:  # these take their reader hours
        raise InputError(f"{name}: {columns:,} columns; at most {MOST_COLUMNS:,} are read; write a row per reading")
    return typed(text_of_frame(rows, name, options), options)


def _scanned(path: Path) -> pl.LazyFrame:
    with path.open("rb") as file:
        parquet = file.read(4) == PARQUET
    return pl.scan_parquet(path, glob=False) if parquet else pl.scan_ipc(path, glob=False)


# --- as text, by the same guesses and checks as a table of text -------------------------------------------


def text_of_frame(rows: pl.LazyFrame, name: str, options: ReadOptions, first: int = 1) -> TextTable:
    """The rows as text; a column of times is the time where none has its name. first: what the first row is called."""
    schema = rows.collect_schema()
    texts = _as_texts(schema)
    columns = dict(options.columns)
    if "time" not in columns and not any(goes_by("time", c) for c in texts):
        stamps = [c for c, dtype in schema.items() if dtype in (pl.Datetime, pl.Date)]
        columns |= {"time": stamps[0]} if len(stamps) == 1 else {}
    header = [c for c in texts if c != INDEX or columns.get("time") == INDEX]
    layout = guess_layout(header, columns, name)
    as_text = rows.select(texts[c] for c in header).with_row_index("__row")
    return TextTable(as_text, layout, name, first, "row")


def _as_texts(schema: pl.Schema) -> dict[str, pl.Expr]:
    """Every column that can be read, as text that is read back alike; what is no single thing cannot."""
    found = {}
    for c, dtype in schema.items():
        one = pl.col(c)
        if isinstance(dtype, pl.Datetime):
            utc = one.dt.convert_time_zone("UTC").dt.to_string(f"{_LOCAL}Z") if dtype.time_zone else None
            found[c] = one.dt.to_string(_LOCAL) if utc is None else utc
        elif not (dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Duration, pl.Time)):
            found[c] = one.cast(pl.String)
    return found


# --- the process apart ------------------------------------------------------------------------------------

PROGRAM = f"from {__name__} import answer; answer()"
READY, READ, NOT = "ready", "read", "not"
_apart: dict[int, subprocess.Popen[str]] = {}  # by the process that asks: a fork has its own
_alone = threading.Lock()


def survives(path: Path) -> bool:
    """Whether a process lives through reading all of it. What is wrong with it otherwise its reader finds out."""
    with _alone:
        try:
            asked = _asked()
            if asked is None or asked.stdin is None or asked.stdout is None:
                return True
            print(json.dumps(str(path.resolve())), file=asked.stdin, flush=True)
            answered = asked.stdout.readline().strip()
        except OSError:
            return True
        if not answered:  # it has ended
            asked.wait()
        return answered == READ


def _asked() -> subprocess.Popen[str] | None:
    """The process to ask, started if there is none that lives; None if none can be."""
    asked = _apart.get(os.getpid())
    if asked is None or asked.poll() is not None:
        pipe, command = subprocess.PIPE, (sys.executable or "", "-P", "-c", PROGRAM)
        asked = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        if asked.stdout is None or asked.stdout.readline().strip() != READY:
            return None
        _apart[os.getpid()] = asked
    return asked


def answer() -> None:
    """The loop of the process apart: read each file that is named on standard input, and answer whether that worked."""
    print(READY, flush=True)
    for line in sys.stdin:
        print(READ if _reads(Path(json.loads(line))) else NOT, flush=True)


def _reads(path: Path) -> bool:
    try:
        rows = _scanned(path)
        texts = _as_texts(rows.collect_schema())
        rows.select(pl.len(), *(text.str.len_bytes().sum() for text in texts.values())).collect()
    except pl.exceptions.PanicException:  # no Exception
        return False
    except (pl.exceptions.PolarsError, OSError, ValueError):  # ordinary: its reader meets it as well
        return True
    return True


READERS = (
    Reader("Parquet", (".parquet",), read_parquet, magic=(PARQUET,)),
    Reader("Feather", (".feather", ".arrow"), read_feather, magic=(FEATHER, OLD)),
)
