"""A page that a tool writes: written, or with --check compared with what is there."""

import sys
from pathlib import Path


def keep(path: Path, text: str) -> int:
    """The exit code: 1 where the page is checked and out of date."""
    if "--check" in sys.argv:
        same = path.exists() and path.read_text() == text
        print("up to date" if same else f"out of date: {path.parent.name}/{path.name}; run python {sys.argv[0]}")
        return 0 if same else 1
    path.write_text(text)
    print(f"written: {path.name}")
    return 0
