"""The documentation site, from the files as they lie in the repository.

python tools/docs_site.py   makes out/site; fails on a page that the navigation lacks, a broken link, or anything that
                            would be loaded from elsewhere

Pages keep their places (README.md, docs/..., examples/...): one link is right here and where the repository is browsed.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out"
CONFIG = ROOT / "zensical.toml"
FOLDERS = ("docs", "examples")
LOADED = re.compile(
    r"""(?:<(?:script|img|iframe|source)\b[^>]*\bsrc|<link\b[^>]*\bhref|@import\s|url)\s*[=(]\s*["']?(?:https?:)?//"""
)


def pages() -> list[str]:
    """Everything that readers are to find."""
    return sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def listed(nav: Any = None) -> Iterator[str]:
    """The pages of the navigation, in its order."""
    for entry in tomllib.loads(CONFIG.read_text())["project"]["nav"] if nav is None else nav:
        for place in entry.values():
            yield from [place] if isinstance(place, str) else listed(place)


def stage(to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in [*(p.name for p in ROOT.glob("*.md")), "CITATION.cff", "LICENSE"]:
        shutil.copy(ROOT / name, to / name)
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__", "homeassistant", "*.veil", "*.db*")
        )


def builder() -> str | None:
    """Beside this Python, or on the path."""
    return shutil.which(
        "zensical", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """folder/docs to folder/site."""
    shutil.copy(CONFIG, folder)
    command = [str(builder()), "build", "--clean", "--strict", "-f", str(folder / CONFIG.name)]
    return subprocess.run(command, check=False, text=True, capture_output=True, env={**os.environ, "NO_COLOR": "1"})


def loads_from_elsewhere(site: Path) -> list[str]:
    kinds = [p for p in site.rglob("*") if p.suffix in (".html", ".css", ".svg")]
    return [str(p.relative_to(site)) for p in kinds if LOADED.search(p.read_text())]


def broken_lists(site: Path) -> list[str]:
    """Pages with a numbered item inside a paragraph: what follows a code block in an item is indented by four."""
    pages = {p: re.findall(r"<p>(.*?)</p>", p.read_text(), re.S) for p in site.rglob("*.html")}
    inside = re.compile(r"^\d+\. ", re.M)
    return [str(p.relative_to(site)) for p, texts in pages.items() if any(inside.search(text) for text in texts)]


def main() -> int:
    lost = set(pages()) ^ set(listed())
    if lost:
        print("not both a file and in the navigation (zensical.toml):", *sorted(lost), file=sys.stderr)
        return 1
    shutil.rmtree(OUT / "site", ignore_errors=True)
    stage(OUT / "docs")
    done = build(OUT)
    if done.returncode:
        print(done.stdout.partition("Traceback")[0], done.stderr.partition("Traceback")[0], file=sys.stderr)
        return 1
    if found := loads_from_elsewhere(OUT / "site"):
        print("loads something from elsewhere:", *found, file=sys.stderr)
        return 1
    print("open out/site/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
