"""axe-core on a page that is open in a browser. The library comes from npm, into .venv; it is not ours and not kept."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / ".venv" / "axe"
PACKAGE = "axe-core@4"
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"], preload: false}).then(found => done(found.violations
  .filter(v => v.impact === "serious" || v.impact === "critical")
  .map(v => `${v.id}: ${v.nodes.map(n => n.target.join(" ") + n.failureSummary.split("\\n")[1]).slice(0, 4)}`)
)).catch(fault => done([String(fault)]));
"""


@cache
def source() -> str:
    """The library's text; a skip where it cannot be had."""
    script = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("needs axe-core from npm, and there is no npm")
        FOLDER.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [npm, "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", FOLDER, PACKAGE],
            capture_output=True,
            text=True,
        )
        if made.returncode or not script.exists():
            pytest.skip("needs axe-core from npm, and npm did not get it")
    return script.read_text()


def serious(browser) -> list[str]:
    """What axe calls serious or critical on the page as it is shown now, a line each."""
    browser.execute_script(source())
    browser.set_script_timeout(60)
    return browser.execute_async_script(RUN)


def show(browser, width: int, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


LOOKS = ((1200, "light"), (390, "dark"))


def findings(browser, url: str | None = None) -> dict[tuple[int, str], list[str]]:
    """Serious ones by look, where there are any; without a url on the page that is open."""
    source()
    found = {}
    for look in LOOKS:
        show(browser, *look)
        if url is not None:
            browser.get(url)
        found[look] = serious(browser)
    for command in ("Emulation.clearDeviceMetricsOverride", "Emulation.setEmulatedMedia"):
        browser.execute_cdp_cmd(command, {})
    return {look: lines for look, lines in found.items() if lines}
