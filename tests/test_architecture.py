"""The folder tree is the architecture: imports go one way, between rooms and inside them."""

import ast
import subprocess
import sys

import pytest

import rooms
from rooms import MODULES, RANK, SMALL, SOURCE, graph, room

HEAVY = {"jax", "equinox", "optax", "sklearn", "polars", "torch", "matplotlib", "gymnasium"}
MOST_TOP_LEVEL = 6


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module):
    for other in graph()[module]:
        assert RANK[room(other)] <= RANK[room(module)], f"{module} imports {other}"


def cycles(graph):
    """Groups of modules that import each other (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            group = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(group) > 1:
                found.append(sorted(group))

    for v in graph:
        if v not in index:
            visit(v)
    return found


def test_no_module_imports_itself_in_a_roundabout_way():
    assert not cycles(graph())


def test_the_cycle_finder_finds_cycles():
    assert cycles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) in SMALL and not m.startswith("gateway.nats")])
def test_what_a_gateway_installs_reaches_no_solver(module):
    reached, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += graph().get(name, [])
    assert not [m for m in reached if room(m) in ("solvers", "deep", "apps", "audit")]


@pytest.mark.parametrize("module", ["artefact", "control.mechanism", "gateway.core", "gateway.scheduler"])
def test_what_a_gateway_installs_loads_nothing_heavy(module):
    code = f"import veilstream.{module}, sys; print(*[m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in loaded if m.split(".")[0] in HEAVY or m.startswith("veilstream.solvers")]


def test_the_picture_and_the_table_of_rooms_are_as_the_imports_are():
    assert not rooms.outdated(), "run: python tools/rooms.py"


def test_an_arrow_that_follows_from_others_is_left_out():
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert rooms.without_implied(graph) == {"a": ["b", "d"], "b": ["c"], "c": [], "d": []}
    assert rooms.heights(graph) == {"a": 2, "b": 1, "c": 0, "d": 0}


def test_few_modules_lie_about():
    assert len([p for p in SOURCE.glob("*.py") if p.name != "__init__.py"]) <= MOST_TOP_LEVEL


def test_every_room_says_what_may_live_there():
    for path in SOURCE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no sentence"


def test_modules_stay_small():
    long = {name: n for name, p in MODULES.items() if (n := len(p.read_text().splitlines())) > 400}
    assert not long
