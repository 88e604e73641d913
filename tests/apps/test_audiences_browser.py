"""The page of several audiences in a real browser: it fits, it can be read by everybody, nothing is asked for."""

import pytest

import axe
import veilstream as vs
from browser import CUT, FITS, chromium, stays_here
from veilstream.data.synthetic import city_chain

pytestmark = pytest.mark.browser
ZONES = "name,lat,lon,radius_m\nhome,-47.0,-125.0,300\nwork,-46.972121,-124.918242,900\n"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder, (chain, states) = tmp_path_factory.mktemp("browser"), city_chain()
    vs.save(model := folder / "city.veil", chain=chain, states=states, period_s=300.0)
    (folder / "zones.csv").write_text(ZONES)
    family = vs.solve(model, avg="0.04km", show="states", window=1)
    near = vs.solve(model, avg="5%", show=str(folder / "zones.csv"), window=1, behind=family)
    page = vs.report(near, out=folder / "page.html", shareable=True, progress=False)
    with chromium(folder / "profile") as opened:
        opened.get("about:blank")
        opened.get_log("performance")
        opened.get(page.path.as_uri())
        yield opened


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_its_window_and_shows_truth_family_and_neighbours(browser, width):
    browser.set_window_size(width, 900)
    assert browser.execute_script(FITS)
    assert browser.execute_script(CUT) == []
    drawn = "return [...document.querySelectorAll('.trio svg')].map(s => s.querySelectorAll('.stay').length)"
    truth, fine, names = browser.execute_script(drawn)
    assert truth >= fine > 1 and names == 0  # names have no place


def test_nothing_leaves_the_page_and_no_error(browser):
    assert stays_here(browser)


def test_axe_finds_nothing_serious(browser):
    assert axe.findings(browser, browser.current_url) == {}
