"""How fast a large file becomes a model, against polars merely parsing it."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from veilstream.data.synthetic import CITY_PERIOD_S, EPOCH_S, city

ROWS = 5_000_000


def write_large_csv(path: str | Path, rows: int = 5_000_000, streams: int = 100, seed: int = 0) -> None:
    """A long table of `streams` commuters, rows / streams fixes each."""
    source = city(2_000, seed)
    each = rows // streams
    rng = np.random.default_rng(seed)
    with Path(path).open("w", encoding="utf-8") as out:
        out.write("stream,time,lat,lon\n")
        for k in range(streams):
            start = int(rng.integers(len(source.path)))
            order = (start + np.arange(each)) % len(source.path)
            lat, lon = source.points[order].T
            t = EPOCH_S + CITY_PERIOD_S * np.arange(each)
            stamps = np.datetime_as_string(t.astype("datetime64[s]"))
            out.writelines(f"u{k},{stamp}Z,{a:.6f},{b:.6f}\n" for stamp, a, b in zip(stamps, lat, lon, strict=True))


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
