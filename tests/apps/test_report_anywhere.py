"""The page of a policy without an end."""

import json
import re

import numpy as np
import pytest

import veilstream as vs
from veilstream.data.synthetic import city

PERSON = city(400)
LAT, LON = PERSON.points.T
TABLE = {"time": PERSON.t_s, "lat": LAT, "lon": LON}


def drawn(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])


@pytest.fixture(scope="module")
def started():
    return vs.start("500m", max="2km", progress=False)


def test_what_is_drawn_is_what_was_read_and_releases_within_the_limit(started, tmp_path):
    made = vs.report(started.artefact, TABLE, tmp_path / "r.html", progress=False)
    page = made.path.read_text()
    data = drawn(page)
    read, released = np.array(data["read"]), np.array(data["released"])
    assert len(read) == len(released) > 50 and np.ptp(read, 0).max() > 0.5
    far = np.hypot(*(read - released).T)
    assert 0 < far.max() <= 2.001  # digits of the page
    rows = (released[:, 1] - released[0, 1]) / data["cell"][1]
    np.testing.assert_allclose(rows, np.rint(rows), atol=0.02)  # whole rows of the lattice apart
    assert "PRIVATE" in page and made.verdict.splitlines()[0] in page.replace("&#x27;", "'")
    assert made.to_json()["charged"] == made.content.data.charged
    assert all(str(c)[:6] not in page for c in PERSON.points.mean(0))  # kilometres only


def test_a_shareable_page_draws_nothing_and_says_later_figures(started, tmp_path):
    page = vs.report(started.artefact, TABLE, tmp_path / "s.html", shareable=True, progress=False).path.read_text()
    assert drawn(page) is None and "Shareable" in page and "later error" in page
    assert 'id="map"' not in page and "command" not in page.split("<main>")[1].split("<script")[0]
