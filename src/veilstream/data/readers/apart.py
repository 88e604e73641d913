"""Files with types are tried by a process apart first: at a damaged one polars may panic, or end its process.

A panic is told on standard error by polars' own threads, with numbers out of the file; an abort cannot be caught at
all. Both happen there, where nobody sees them, and here is one line. The process is started once, and asked file by
file; where none can be started the file is read without.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl

from veilstream.data.readers.frame import as_texts

PROGRAM = f"from {__name__} import answer; answer()"
READY, READ, NOT = "ready", "read", "not"
PARQUET, FEATHER = b"PAR1", b"ARROW1"  # what they begin with
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
        with path.open("rb") as file:
            head = file.read(8)
        rows = pl.scan_parquet(path, glob=False) if head.startswith(PARQUET) else pl.scan_ipc(path, glob=False)
        texts = as_texts(rows.collect_schema())
        rows.select(pl.len(), *(text.str.len_bytes().sum() for text in texts.values())).collect()
    except pl.exceptions.PanicException:  # no Exception
        return False
    except (pl.exceptions.PolarsError, OSError, ValueError):  # ordinary: its reader meets it as well
        return True
    return True
