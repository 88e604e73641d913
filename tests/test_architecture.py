"""The folder tree is the architecture: imports go one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "veilstream"

# every module may import from the lines above its own, and from its own line
LAYERS = [
    ["errors", "information", "units"],
    ["distortion", "chain", "container"],
    ["problem", "pattern"],
    ["network", "local_policy", "policy"],
    ["builtin", "states", "steady", "local_steady", "evaluate"],
    ["artefact", "data", "env"],
    ["meter", "selection", "state_search", "release", "solvers"],
    ["store", "fitting", "replay"],
    ["gateway", "audit", "report"],
    ["fleet", "paper", "bench"],
    ["plan"],
    ["cli"],
]
RANK = {module: i for i, layer in enumerate(LAYERS) for module in layer}
NO_SOLVER = ["release", "store", "gateway", "meter", "artefact", "states", "policy"]
HEAVY = {"jax", "equinox", "optax", "sklearn", "polars", "torch", "matplotlib", "gymnasium"}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).with_suffix("").parts
        if part != ("__init__",):
            yield part[0], path


def imports(path, top_only=False):
    tree = ast.parse(path.read_text())
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda v: getattr(v, "stem", v))
def test_imports_go_one_way(module, path):
    assert module in RANK, f"{module} has no place in the order; add it to LAYERS"
    for name in imports(path):
        if name.startswith("veilstream."):
            other = name.split(".")[1]
            assert RANK[other] <= RANK[module], f"{path.name} imports {name}"


@pytest.mark.parametrize("module", NO_SOLVER)
def test_what_a_gateway_installs_loads_no_solver_and_nothing_heavy(module):
    code = f"import veilstream.{module}, sys; print(*[m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in loaded if m.split(".")[0] in HEAVY or m.startswith("veilstream.solvers")]


def test_modules_stay_small():
    long = {p.name: n for _, p in modules() if (n := len(p.read_text().splitlines())) > 400}
    assert not long
