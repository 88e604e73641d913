"""The page of a judgement in a real browser: it fits, it can be read by everybody, nothing is asked for."""

import pytest

import axe
import veilstream as vs
from browser import CUT, FITS, chromium, stays_here
from veilstream.apps.report.judged import page
from veilstream.data.synthetic import city

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder, source = tmp_path_factory.mktemp("browser"), city(800)
    lat, lon = source.points.T
    model = vs.fit({"time": source.t_s, "lat": lat, "lon": lon})
    names = ["android-coarse", "grid=5km", "hold=1", "randomised-response"]
    found = vs.judge(model, mechanism=names, certify_seconds=0.2, streams=16, steps=60)
    with chromium(folder / "profile") as opened:
        (folder / "judge.html").write_text(page(found), encoding="utf-8")
        opened.get("about:blank")
        opened.get_log("performance")
        opened.get((folder / "judge.html").as_uri())
        yield opened


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_its_window(browser, width):
    browser.set_window_size(width, 900)
    assert browser.execute_script(FITS)
    assert browser.execute_script(CUT) == []
    assert browser.execute_script("return document.querySelectorAll('#judged circle').length") == 8  # ours beside each


def test_nothing_leaves_the_page_and_no_error(browser):
    assert stays_here(browser)


def test_axe_finds_nothing_serious(browser):
    assert axe.findings(browser, browser.current_url) == {}
