"""Benchmarks: each function returns a dict of figures measured in one run, ratios where the machine would decide.

Outside the package: `make bench`, or `python -m benchmarks NAME` from the root of the repository. What they start is a
Python process with the same path.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIT = ROOT / "tests" / "kit"  # servers, which the tests start too
PATHS = [str(path) for path in (ROOT, KIT) if str(path) not in sys.path]
sys.path[:0] = PATHS


def environment() -> dict[str, str]:
    """For processes that import from here."""
    path = [str(ROOT), str(KIT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
