"""How fast a large file becomes a model, against polars merely parsing it."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from veilstream.data.synthetic import write_large_csv

ROWS = 5_000_000


def bench_large_csv(rows: int = ROWS) -> dict[str, float]:
    """`veil fit` in its own process, so that its memory is its own."""
    import polars

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.csv"
        write_large_csv(path, rows)
        began = perf_counter()
        polars.read_csv(path)
        parse = perf_counter() - began
        began = perf_counter()
        command = [sys.executable, "-c", "from veilstream.apps.cli import main; main()", "fit", str(path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took = perf_counter() - began
    return {
        "rows": rows,
        "states": json.loads(done.stdout)["states"],
        "seconds": took,
        "polars_parse_seconds": parse,
        "times_a_bare_parse": took / parse,
        "peak_rss_gb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20,
    }


def run() -> dict[str, dict[str, float]]:
    return {"large_csv": bench_large_csv()}
