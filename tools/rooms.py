"""The rooms of the source tree and the imports between them, read from the source itself.

    python tools/rooms.py           writes docs/rooms.svg and the table of rooms in docs/architecture.md
    python tools/rooms.py --check   says whether both are up to date (exit code 1 if not)

`tests/test_architecture.py` pins the order of the rooms on the same graph.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "veilstream"
PICTURE, PAGE = ROOT / "docs" / "rooms.svg", ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by tools/rooms.py -->", "<!-- end of rooms -->"

# every module may import from its own room and from those above it; the longest name that fits is a module's room
ROOMS = [
    ["errors", "units", "container", "shown"],
    ["model"],
    ["control"],
    ["data.states", "data.cost", "data.trajectories", "data.spec", "data.columns"],
    ["artefact"],
    ["data"],
    ["solvers"],
    ["deep"],
    ["gateway"],
    ["audit"],
    ["apps"],
]
RANK = {room: i for i, level in enumerate(ROOMS) for room in level}
SMALL = [
    "artefact",
    "container",
    "control",
    "data.columns",
    "data.cost",
    "data.spec",
    "data.states",
    "data.trajectories",
    "gateway",
    "model",
    "shown",
]  # what a gateway installs

# --- the graph -------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(p): p for p in sorted(SOURCE.rglob("*.py")) if p != SOURCE / "__init__.py"}


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("veilstream"):
            base = (node.module or "").removeprefix("veilstream").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in MODULES else base
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("veilstream.") for a in node.names if a.name.startswith("veilstream."))


@cache
def graph() -> dict[str, list[str]]:
    return {name: sorted(set(imports(path)) - {name, ""}) for name, path in MODULES.items()}


def room(name: str) -> str:
    fits = [r for r in RANK if name == r or name.startswith(r + ".")]
    assert fits, f"{name} has no room; add it to ROOMS"
    return max(fits, key=len)


def needs() -> dict[str, set[str]]:
    """Room -> the rooms its modules import from; the rooms of one level are drawn as one, named by its first."""
    found: dict[str, set[str]] = {level[0]: set() for level in ROOMS}
    for module, others in graph().items():
        own = ROOMS[RANK[room(module)]][0]
        found[own] |= {ROOMS[RANK[room(other)]][0] for other in others} - {own}
    return found


def without_implied(graph: dict[str, set[str]]) -> dict[str, list[str]]:
    """The arrows that do not follow from others (the transitive reduction)."""

    def reach(start: str) -> set[str]:
        return graph[start].union(*(reach(n) for n in graph[start]))

    return {a: sorted(graph[a] - set().union(*(reach(b) for b in graph[a]))) for a in graph}


# --- the picture -----------------------------------------------------------------------------------------

COLUMN = {  # where a room stands, in box widths; how high follows from the imports
    "apps": 1.0,
    "gateway": 0.0,
    "audit": 1.0,
    "artefact": 0.0,
    "data": 1.0,
    "deep": 2.3,
    "data.states": 0.5,
    "solvers": 1.95,
    "control": 1.0,
    "model": 1.0,
    "errors": 1.0,
}
WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 224, 58, 264, 104, 24
STYLE = """
  :root { --paper: #ffffff; --ink: #1c2733; --soft: #5a6875; --line: #7b8996; --box: #f3f6f8; --small: #e3f1ee;
          --small-line: #1f6f78; }
  @media (prefers-color-scheme: dark) { :root { --paper: #12181f; --ink: #e6ebf0; --soft: #a3b0bc; --line: #8795a3;
          --box: #1d2731; --small: #12343a; --small-line: #56b3bd; } }
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); }
  .name { font-size: 17px; font-weight: 600; text-anchor: middle; }
  .holds { font-size: 12.5px; fill: var(--soft); text-anchor: middle; }
  .note { font-size: 12.5px; fill: var(--soft); }
  .room { fill: var(--box); stroke: var(--line); stroke-width: 1.2; }
  .small { fill: var(--small); stroke: var(--small-line); }
  .arrow { fill: none; stroke: var(--line); stroke-width: 1.6; }
  .head { fill: var(--line); }
"""


def heights(graph: dict[str, set[str]]) -> dict[str, int]:
    """How many rooms lie under a room on the longest way down."""

    def height(name: str) -> int:
        return 1 + max((height(n) for n in graph[name]), default=-1)

    return {name: height(name) for name in graph}


def title(name: str) -> tuple[str, str]:
    """What stands in a box: the room, and the folders or the other modules in it."""
    level = ROOMS[RANK[name]]
    if len(level) > 1:
        return level[0].replace(".", "/"), ", ".join(other.rpartition(".")[2] for other in level[1:])
    path = SOURCE.joinpath(*name.split("."))
    folders = sorted(p.parent.name for p in path.glob("*/__init__.py"))
    return name.replace(".", "/") + ("/" if path.is_dir() else ""), " ".join(folders)


def picture() -> str:
    graph = needs()
    high = heights(graph)
    top = max(high.values())
    at: dict[str, tuple[float, float]] = {
        name: (EDGE + COLUMN[name] * ACROSS, EDGE + (top - high[name]) * DOWN) for name in graph
    }
    wide = max(x for x, _ in at.values()) + WIDTH + EDGE
    tall = max(y for _, y in at.values()) + HEIGHT + 64
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {tall:g}" width="{wide:g}" height="{tall:g}" '
        'role="img" aria-label="The rooms of veilstream; each imports from those below it only">',
        f"<style>{STYLE}</style>",
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 L10 5 L0 10 z"/></marker>',
        f'<rect width="{wide:g}" height="{tall:g}" rx="8" style="fill: var(--paper)"/>',
    ]
    for a, below in without_implied(graph).items():
        out += [_arrow(at, graph, a, b, i, len(below)) for i, b in enumerate(sorted(below, key=lambda r: at[r][0]))]
    for name, (x, y) in at.items():
        kind = "room small" if name in SMALL or name == "errors" else "room"
        bold, holds = title(name)
        out.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>')
        line = y + (25 if holds else 35)
        out.append(f'<text class="name" x="{x + WIDTH / 2:g}" y="{line:g}">{escape(bold)}</text>')
        if holds:
            out.append(f'<text class="holds" x="{x + WIDTH / 2:g}" y="{line + 19:g}">{escape(holds)}</text>')
    foot = tall - 34
    out += [
        f'<rect class="room small" x="{EDGE}" y="{foot - 11:g}" width="18" height="13" rx="3"/>',
        f'<text class="note" x="{EDGE + 26}" y="{foot:g}">what a gateway installs</text>',
        f'<text class="note" x="{EDGE}" y="{foot + 20:g}">An arrow: imports from. '
        "Arrows that follow from others are left out; none points up.</text>",
        "</svg>",
    ]
    return "\n".join(out) + "\n"


def _arrow(at: dict[str, tuple[float, float]], graph: dict[str, set[str]], a: str, b: str, i: int, n: int) -> str:
    """From the lower edge of a, its i-th of n, to the upper edge of b: sideways at once, then straight down."""
    coming = sorted((r for r in graph if b in without_implied(graph)[r]), key=lambda r: at[r][0])
    x0, y0 = at[a][0] + WIDTH * (i + 1) / (n + 1), at[a][1] + HEIGHT
    x1, y1 = at[b][0] + WIDTH * (coming.index(a) + 1) / (len(coming) + 1), at[b][1] - 1
    turn = y0 + DOWN - HEIGHT - 8
    bend = f"C{x0:.1f} {turn:.1f} {x1:.1f} {y0:.1f} {x1:.1f} {turn:.1f}"
    return f'<path class="arrow" marker-end="url(#head)" d="M{x0:.1f} {y0:.1f} {bend} L{x1:.1f} {y1:.1f}"/>'


# --- the table -------------------------------------------------------------------------------------------


def sentence(name: str) -> str:
    """The first paragraph of what a room or module says of itself."""
    text = ast.get_docstring(ast.parse(MODULES[name].read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def table() -> str:
    rows = ["| room | what may live there |", "|---|---|"]
    for level in ROOMS:
        for name in level:
            path = name.replace(".", "/") + ("/" if MODULES[name].name == "__init__.py" else ".py")
            rows.append(f"| `{path}` | {sentence(name)} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with its table of rooms made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def outdated() -> list[str]:
    """The files that are not as the source tree is."""
    new = {PICTURE: picture(), PAGE: page(PAGE.read_text())}
    return [str(p.relative_to(ROOT)) for p, text in new.items() if not p.exists() or p.read_text() != text]


def main() -> int:
    old = outdated()
    if "--check" in sys.argv:
        print(f"out of date: {', '.join(old)}; run python tools/rooms.py" if old else "up to date")
        return 1 if old else 0
    PICTURE.write_text(picture())
    PAGE.write_text(page(PAGE.read_text()))
    print(f"written: {', '.join(old) or 'nothing, all was up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
