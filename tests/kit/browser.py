"""A headless Chromium for the tests of pages, or a skip that says why not."""

import json
import shutil
from contextlib import contextmanager

import pytest

FITS = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
CUT = """return [...document.querySelectorAll("svg text")].filter(t => {
  const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
  return a.left < b.left - 1 || a.right > b.right + 1}).map(t => t.textContent)"""  # labels that leave their figure
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--window-size=1200,900",
)


@contextmanager
def chromium(folder):
    pytest.importorskip("selenium", reason="selenium is not installed")
    binary, driver = next(filter(None, map(shutil.which, NAMES)), None), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("needs headless Chromium: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def stays_here(browser) -> bool:
    """Whether nothing was asked for but files and what is in them, and nothing went wrong."""
    asked = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    wrong = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    return not wrong and all(u.startswith(("file:", "data:")) for u in urls)
