"""The tables in the documents that `python -m benchmarks NAME --table` prints, written by it.

python tools/bench_tables.py NAME ...   runs these benchmarks (minutes each; VEIL_DATA names the data) and writes theirs
python tools/bench_tables.py --check    says which table has not the form that its benchmark prints (exit code 1)

A table stands between `<!-- python -m benchmarks NAME --table -->` (with the flags it takes) and `<!-- end -->`.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.table import markdown  # noqa: E402

DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- python -m benchmarks (\w+)((?: --\w+)*) --table -->\n\n).*?(\n\n<!-- end -->)", re.S)
FIGURE = re.compile(r"\{[^{}:]+(?::([^{}]*))?\}")  # of a format: '{felt:.2f}'


def benchmark(name: str) -> ModuleType:
    return import_module(f"benchmarks.{name}")


def blocks() -> dict[str, tuple[Path, re.Match[str]]]:
    """Benchmark -> the page its table is on, and where."""
    return {
        found[2]: (page, found) for page in sorted(DOCS.rglob("*.md")) for found in BLOCK.finditer(page.read_text())
    }


def made(name: str, flags: str) -> str:
    module = benchmark(name)
    return markdown(module.run(full=True) if "--full" in flags else module.run(), module.TABLE, module.WHO)


def pattern(text: str) -> str:
    """What a cell with this format looks like."""
    out, at = "", 0
    for found in FIGURE.finditer(text):
        out += re.escape(text[at : found.start()]) + _figure(found[1] or "")
        at = found.end()
    return out + re.escape(text[at:])


def _figure(spec: str) -> str:
    digits = re.fullmatch(r"[+,]*\.(\d)([f%])", spec)
    if digits is None:
        return r"[^|]+"
    decimals = rf"\.\d{{{digits[1]}}}" if digits[1] != "0" else ""
    return rf"[+-]?[\d,]+{decimals}{'%' if digits[2] == '%' else ''}"


def fault(table: str, module: ModuleType) -> str | None:
    """The first line that the benchmark would not print."""
    head, rule, *rows = table.splitlines()
    if [head, rule] != markdown({}, module.TABLE, module.WHO).splitlines() or not rows:
        return head
    cells = re.compile(r"\| [^|]+ \| " + r" \| ".join(map(pattern, module.TABLE.values())) + r" \|")
    noted = re.compile(r"\| [^|]+ \| [^|]+ \|" + r"  \|" * (len(module.TABLE) - 1))
    return next((row for row in rows if not cells.fullmatch(row) and not noted.fullmatch(row)), None)


def main() -> int:
    there = blocks()
    if "--check" in sys.argv:
        wrong = [(n, f) for n, (_, b) in there.items() if (f := fault(b[0][len(b[1]) : -len(b[4])], benchmark(n)))]
        for name, line in wrong:
            print(f"{name}: {line!r} is not what `python -m benchmarks {name} --table` prints")
        return 1 if wrong else 0
    for name in sys.argv[1:]:
        page, found = there[name]
        table = made(name, found[3])
        text = page.read_text()
        page.write_text(text.replace(found[0], f"{found[1]}{table}{found[4]}"))
        print(f"written: {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
