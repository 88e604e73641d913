"""The summary page in a real browser: it sorts, it fits, nothing is asked for."""

import json

import pytest

import axe
from browser import chromium
from fleetkit import row
from veilstream.apps.fleet.page import page
from veilstream.apps.fleet.summary import Summary

pytestmark = pytest.mark.browser
FITS = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
CELLS = """const heads = [...document.querySelectorAll("table.sortable thead th")].map(h => h.textContent);
  const at = heads.indexOf(arguments[0]);
  return [...document.querySelectorAll("table.sortable tbody tr")].map(r => r.cells[at].textContent)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    told = Summary(
        [row(i, "km" if i % 2 else "kWh") for i in range(1, 13)], {"bad": "a line"}, [], "serial", 0
    ).to_json()
    with chromium(folder / "profile") as opened:
        (folder / "index.html").write_text(page(told), encoding="utf-8")
        opened.get("about:blank")
        opened.get_log("performance")
        opened.get((folder / "index.html").as_uri())
        yield opened


def test_a_click_on_a_head_sorts_by_number_and_back(browser):
    from selenium.webdriver.common.by import By

    leakage = [float(s.rstrip("%")) for s in browser.execute_script(CELLS, "of the truth")]
    assert leakage == sorted(leakage, reverse=True)  # most revealing first, before any click
    steps = next(b for b in browser.find_elements(By.CSS_SELECTOR, "thead button") if b.text == "steps")
    for down in (False, True):
        steps.click()
        found = [int(s.replace(",", "")) for s in browser.execute_script(CELLS, "steps")]
        assert found == sorted(found, reverse=down) and len(found) == 12


@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_its_window(browser, width):
    browser.set_window_size(width, 900)
    assert browser.execute_script(FITS)
    labels = """return [...document.querySelectorAll(".chart text")].filter(t => {
      const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
      return a.left < b.left - 1 || a.right > b.right + 1}).map(t => t.textContent)"""
    assert browser.execute_script(labels) == []


def test_nothing_leaves_the_page_and_no_error(browser):
    asked = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    assert all(u.startswith(("file:", "data:")) for u in urls)
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def test_axe_finds_nothing_serious(browser):
    assert axe.findings(browser, browser.current_url) == {}
