"""What commands print in the documents, written by the commands.

python tools/console.py            runs the console blocks of README and tutorials and writes what they print
python tools/console.py PAGE ...   of these pages
python tools/console.py --check    says whether a page is out of date (exit code 1 if one is)

A page's blocks share one empty folder: `python` blocks run, lines `$ veil ...` of `console` blocks run and are followed
by what they print, `| head -N` keeps its beginning. What is fenced as `sh` is only shown. Numbers may differ by 5 %
(another processor, another draw) and times and gaps as they like before a page counts as out of date.
"""

import contextlib
import io
import itertools
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")
CLOSE, NEAR = 0.05, 0.05
DRAWN = ("mean error: ", "leaked: ")  # of releases, which are drawn securely: never the same twice
WIDTH = "110"


def veil(line: str) -> str:
    """What one command prints, both streams, as to a file; it must end well. `echo TEXT |` is its standard input."""
    from veilstream.apps.cli import alone, main

    words, given, most, command = shlex.split(line), "", None, None
    if words[:3] == ["python", "-m", "reproduce"]:
        sys.path.insert(0, str(ROOT))
        from reproduce import __main__ as module

        words, command = words[2:], alone(module.paper, module, "paper")
    if words[0] == "echo":
        given, words = words[1] + "\n", words[3:]
    if "|" in words:
        most, words = int(words[-1].lstrip("-")), words[: words.index("|")]
    to = None
    if ">" in words:
        to, words = words[words.index(">") + 1], words[: words.index(">")]
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    out = open(to, "w", encoding="utf-8") if to else said  # noqa: SIM115
    before, sys.argv, sys.stdin = (sys.argv, sys.stdin), words, io.TextIOWrapper(io.BytesIO(given.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            main(command)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{line}: exit code {end.code}: {said.buffer.getvalue().decode()}") from None  # type: ignore[attr-defined]
    finally:
        sys.argv, sys.stdin = before
        if to:
            out.close()
    lines = said.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]
    return "\n".join(part.rstrip() for part in lines[:most])


def console(block: str) -> str:
    """The block with what its commands print now."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {line}\n{told}\n" if (told := veil(line)) else f"$ {line}\n" for line in commands)


def renewed(text: str) -> str:
    """A page, its blocks run in the present folder."""
    names: dict[str, object] = {"__name__": "page"}

    def block(found: re.Match[str]) -> str:
        if found[1] == "python":
            exec(compile(found[2], "page", "exec"), names)
        return f"```console\n{console(found[2])}```" if found[1] == "console" else found[0]

    return FENCE.sub(block, text)


@contextlib.contextmanager
def in_an_empty_folder() -> Iterator[None]:
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["COLUMNS"] = WIDTH
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)


def differs(old: str, new: str) -> str | None:
    """The first line that says something else."""
    for was, is_now in itertools.zip_longest(old.splitlines(), new.splitlines(), fillvalue=""):
        a, b = (" ".join(NUMBER.sub("#", line).replace("-", " ").split()) for line in (was, is_now))
        if a != b:
            return f"{was!r} is now {is_now!r}"
        for m, n in () if was.startswith(DRAWN) else zip(NUMBER.finditer(was), NUMBER.finditer(is_now), strict=True):
            x, y = (float(found[0].replace(",", "")) for found in (m, n))
            timed = re.match(r" s\b", was[m.end() :]) or was[: m.start()].endswith(
                "gap "
            )  # a proof gets so far in its time
            if not timed and abs(x - y) > max(NEAR, CLOSE * max(abs(x), abs(y))):
                return f"{was!r} is now {is_now!r}"
    return None


def main() -> int:
    check, stale = "--check" in sys.argv, []
    pages = [Path(a).resolve() for a in sys.argv[1:] if not a.startswith("--")] or PAGES
    for page in pages:
        old = page.read_text()
        with in_an_empty_folder():
            new = renewed(old)
        if check and (found := differs(old, new)):
            stale.append(f"{page.name}: {found}; run python tools/console.py")
        elif not check:
            page.write_text(new)
        print(page.name, file=sys.stderr)
    print(*stale, sep="\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
