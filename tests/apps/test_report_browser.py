"""The report in a real browser: everything moves together, nothing leaves the page."""

import json
import time

import pytest

import axe
import report_pages
from browser import chromium
from veilstream.apps.paper.item import Budget
from veilstream.apps.paper.run import chosen, run
from veilstream.apps.report.page import render

pytestmark = pytest.mark.browser
OUTSIDE = """return [...document.querySelectorAll("svg text")].filter(t => {
  const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
  return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 2 || a.bottom > b.bottom + 2;
}).map(t => t.textContent)"""  # labels that leave their figure


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page, opened: its browser, its content, its path."""
    folder = tmp_path_factory.mktemp("browser")
    content = report_pages.town()[3]
    with chromium(folder / "profile") as browser:
        path = folder / "report.html"
        path.write_text(render(content), encoding="utf-8")
        browser.get("about:blank")
        browser.get_log("performance")  # what the browser's own first page asked for
        browser.get(path.as_uri())
        yield browser, content, path


def look(browser):
    return browser.execute_script(
        """const at = document.getElementById("chosen");
        return {x: at.getAttribute("cx"), trace: document.getElementById("released-path").getAttribute("points"),
          truth: document.getElementById("true-path").getAttribute("points"),
          map: [...document.querySelectorAll("#map [data-state]")].map(e => e.outerHTML).join(),
          channel: document.querySelector("#channel image").getAttribute("href"),
          said: document.getElementById("now").textContent,
          headline: document.getElementById("headline").textContent,
          table: document.getElementById("rivals").textContent,
          command: document.getElementById("command").textContent,
          value: document.getElementById("point").getAttribute("aria-valuetext")}"""
    )


def test_it_opens_in_under_two_seconds(page):
    browser, _, path = page
    assert path.stat().st_size < 5e6
    took = []
    for _ in range(3):  # the quickest: other work on the machine is not the page's
        began = time.perf_counter()
        browser.get(path.as_uri())
        took.append(time.perf_counter() - began)
    assert min(took) < 2


def test_the_slider_moves_point_trace_map_and_channel_together(page):
    browser, content, _ = page
    from selenium.webdriver.common.keys import Keys

    slider = browser.find_element("id", "point")
    before = look(browser)
    assert before["said"].startswith("This policy")
    slider.send_keys(Keys.HOME)
    accurate = look(browser)
    slider.send_keys(Keys.END)
    private = look(browser)
    for part in ("x", "trace", "map", "channel", "said", "value", "headline", "table", "command"):
        assert accurate[part] != private[part], part
    assert accurate["truth"] == private["truth"]
    assert float(accurate["x"]) < float(private["x"])
    last = content.spots[-1].point
    assert f"{last.distortion:.3g}" in private["value"]
    browser.find_element("id", "back").click()
    assert look(browser) == before


def test_it_can_be_reached_and_moved_by_keyboard_alone(page):
    browser, _, _ = page
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    browser.execute_script("document.body.tabIndex = -1; document.body.focus()")
    ActionChains(browser).send_keys(Keys.TAB).perform()
    assert browser.switch_to.active_element.get_attribute("id") == "point"
    before = look(browser)["x"]
    ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
    assert look(browser)["x"] != before


def test_nothing_leaves_the_page_and_nothing_complains(page):
    browser, _, path = page
    asked = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert [url for url in asked if not url.startswith(("data:", path.as_uri()))] == []
    assert browser.get_log("browser") == []
    blocked = browser.execute_async_script(
        """const done = arguments[0];
        document.addEventListener("securitypolicyviolation", e => done(e.violatedDirective));
        fetch("http://127.0.0.1:9/").catch(() => {}); setTimeout(() => done("not blocked"), 2000)"""
    )
    assert blocked == "connect-src"
    browser.get_log("browser")  # which says so


APART = "e => parseFloat(getComputedStyle(e).paddingRight) || (e === e.parentElement.lastElementChild ? 9 : 0)"


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_it_fits_a_phone_and_a_desk(page, width):
    browser, _, _ = page
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    if width < 500:  # figures stand apart, and lines that run on do not reach the next column
        gaps = browser.execute_script(f"return [...document.querySelectorAll('.figures td')].map({APART})")
        assert min(gaps) >= 5
    assert browser.execute_script(OUTSIDE) == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [390, 1280])
def test_no_label_of_a_fine_meter_is_cut(page, width, tmp_path):
    """Issue 27: many bins of a few Wh have long names, and a day of them a long scale."""
    browser, _, own = page
    (tmp_path / "fine.html").write_text(render(report_pages.fine_meter()), encoding="utf-8")
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((tmp_path / "fine.html").as_uri())
    assert len(browser.find_elements("css selector", "#h-day")) == 1 and browser.execute_script(OUTSIDE) == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(own.as_uri())


def test_values_fit_too(page, tmp_path):
    browser, _, _ = page
    other = tmp_path / "h.html"
    other.write_text(render(report_pages.home()), encoding="utf-8")
    back = browser.current_url
    browser.get(other.as_uri())
    assert browser.execute_script(OUTSIDE) == [] and browser.get_log("browser") == []
    browser.get(back)


def test_dark_and_print(page):
    browser, _, _ = page
    colours = {}
    for name, how in (
        ("light", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}),
        ("dark", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}),
        ("print", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}),
    ):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", how)
        colours[name] = browser.execute_script(
            "return [getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.querySelector('.control')).display]"
        )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert colours["light"][0] == colours["print"][0] != colours["dark"][0]
    assert colours["print"][1] == "none"


def test_axe_finds_nothing_serious_here_and_in_the_index_of_the_paper(page, tmp_path):
    browser, _, path = page
    meter = tmp_path / "meter.html"
    meter.write_text(render(report_pages.home()), encoding="utf-8")
    run(tmp_path, chosen("grid-trajectory"), Budget())
    for shown in (meter, tmp_path / "index.html", path):
        assert axe.findings(browser, shown.as_uri()) == {}, shown.name
