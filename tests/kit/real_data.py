"""Where the real data is, if it is there: ../shared/data from the project's root, or $VEIL_DATA."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VEIL_DATA") or ROOT.parent / "shared" / "data")
GEOLIFE = DATA / "geolife"
METER = DATA / "smartmeter" / "lcl_2013_halfhourly_20households.csv"

needs_geolife = pytest.mark.skipif(not GEOLIFE.is_dir(), reason="no GeoLife data in ../shared/data or $VEIL_DATA")
needs_meter = pytest.mark.skipif(not METER.is_file(), reason="no meter data in ../shared/data or $VEIL_DATA")
