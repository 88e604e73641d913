"""Do the tests notice when the code is wrong? Small changes to the modules that promises rest on, one at a time.

    python tools/mutants.py [MODULE...] [--sample 50] [--seed 1] [--json FILE]

A mutant is the module with one thing changed: a comparison, an operator, a number, a condition, a statement left out.
It is killed if the module's own tests fail or take far too long. Which mutants are tried is a sample by the seed, which
is printed. Everything happens in a copy. Survivors are listed, to be judged (docs/security.md has the last run).
"""

import argparse
import ast
import contextlib
import copy
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = {
    "model/problem": ["model/test_problem.py", "control/test_policy.py"],
    "control/policy": ["control/test_policy.py", "control/test_new_policy.py", "control/test_ladder.py"],
    "control/automaton": ["control/test_memory.py", "control/test_policy.py"],
    "control/controller": ["control/test_memory.py", "control/test_policy.py", "model/test_cyclic.py"],
    "control/mechanism": [
        "model/test_cyclic.py",
        "gateway/test_feedback.py",
        "control/test_ladder.py",
        "control/test_history_meter.py",
        "control/test_release_parts.py",
        "gateway/test_release.py",
        "gateway/test_meter.py",
    ],
    "control/accountant": [
        "control/test_history_meter.py",
        "control/test_release_parts.py",
        "gateway/test_release.py",
        "gateway/test_meter.py",
    ],
    "gateway/database": ["gateway/test_store.py", "gateway/test_second_draws.py", "gateway/test_owners.py"],
    "gateway/place": ["gateway/test_store.py", "gateway/test_second_draws.py", "gateway/test_owners.py"],
    "gateway/store": ["gateway/test_store.py", "gateway/test_second_draws.py", "gateway/test_poison.py"],
    "gateway/scheduler": [
        "gateway/test_presence.py",
        "gateway/test_gateway_core.py",
        "gateway/test_gateway_values.py",
        "gateway/test_gateway_conformance.py",
        "gateway/test_same_path.py",
    ],
    "gateway/drift": ["gateway/test_status.py", "gateway/test_same_path.py"],
    "gateway/wire": ["gateway/test_gateway_values.py", "gateway/test_fields.py", "gateway/test_same_path.py"],
    "gateway/packets": ["gateway/test_packets.py"],
    "gateway/broker": ["gateway/test_packets.py"],
}
QUICK = "not service and not slow and not browser"
HEAVY = ["hypothesis", "msgspec", "numpy", "pytest", "safetensors.numpy", "scipy.optimize", "scipy.sparse"]
HEAVY += ["scipy.stats", "typer", "rich.console", "aiohttp.web", "nats", "polars"]  # imported once
PATIENCE = 4  # times what the tests take on the module as it is, and ten seconds
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.MatMult: ast.Add, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


# --- mutants ---------------------------------------------------------------------------------------------------


def mutants(source: str) -> list[tuple[int, str, str]]:
    """(line, what was changed, the whole module) of every mutant."""
    tree = ast.parse(source)
    out = []
    for i, node in enumerate(_nodes(tree)):
        for what, change in _changes(node):
            mutant = copy.deepcopy(tree)
            twin = _nodes(mutant)[i]
            before = ast.unparse(node)
            change(twin)
            ast.fix_missing_locations(mutant)
            after = "nothing" if isinstance(twin, ast.Pass) else ast.unparse(twin)
            text = ast.unparse(mutant)
            if text != ast.unparse(tree):
                out.append((node.lineno, f"{what}: {_short(before)} -> {_short(after)}", text))
    return out


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:67]}..."


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """What may be changed, always in the same order: no annotations, texts, imports or things said to people."""
    out: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
            return
        if hasattr(node, "lineno"):
            out.append(node)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(
                node, ast.Call
            ):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":  # as an assertion
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not (
                    isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign)
                ):
                    visit(child)

    visit(tree)
    return out


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "comparison", lambda n: n.ops.__setitem__(0, SWAPS[type(n.ops[0])]())  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
        yield "operator", lambda n: setattr(n, "op", SWAPS[type(n.op)]())  # type: ignore[attr-defined]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield "sign", lambda n: setattr(n, "op", ast.UAdd())  # of a number: its value is changed
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        new = not node.value if isinstance(node.value, bool) else node.value + 1
        if not isinstance(node.value, bool) and (abs(node.value) >= 1000 or 0 < abs(node.value) < 1e-3):
            new = -node.value  # one more or less of a size or a tolerance is no fault
        yield "value", lambda n: setattr(n, "value", new)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))  # type: ignore[attr-defined]
    if isinstance(node, ast.Return) and node.value is not None and not _is(node.value, None):
        yield "result", lambda n: setattr(n, "value", ast.Constant(None))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Yield):
        yield "left out", lambda n: (setattr(n, "value", ast.Constant(...)), None)[1]
    if isinstance(node, ast.AugAssign):
        yield "left out", lambda n: setattr(n, "value", ast.Constant(0))


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


# --- trials ----------------------------------------------------------------------------------------------------


def survives(copy_of: Path, tests: list[str], timeout_s: float) -> bool | None:
    """Whether these tests pass, in a child that begins with everything heavy imported; None: not in time."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        os.chdir(copy_of)
        sys.path.insert(0, str(copy_of / "src"))
        os.environ["PYTHONPATH"] = str(copy_of / "src")
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib"]
        os._exit(int(pytest.main([*options, "-m", QUICK, *tests])))
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _same(every: list[tuple[int, str, str]], told: str) -> int:
    """The mutant that another run told of, nearest to the line it was on: lines may have moved."""
    place, _, what = told.partition(" ")
    line = int(place.rpartition(":")[2])
    alike = [i for i, m in enumerate(every) if m[1] == what]
    if not alike:
        raise SystemExit(f"there is no such mutant any more: {told}")
    return min(alike, key=lambda i: abs(every[i][0] - line))


def try_module(name: str, folder: Path, sample: int, rng: random.Random, before: dict | None) -> dict:
    path = folder / "src" / "veilstream" / f"{name}.py"
    source, tests = path.read_text(), [f"tests/{t}" for t in TESTS[name]]
    start = time.monotonic()
    if not survives(folder, tests, 600):
        raise SystemExit(f"the tests of {name} fail without any mutant: {tests}")
    timeout_s = PATIENCE * (time.monotonic() - start) + 10
    every = mutants(source)
    tried = sorted(rng.sample(range(len(every)), min(sample, len(every))))
    if before:
        tried = sorted({_same(every, told) for told in before["survivors"]})
    survivors, endless = [], 0
    for i in tried:
        line, what, text = every[i]
        path.write_text(text)
        found = survives(folder, tests, timeout_s)
        endless += found is None
        if found:
            survivors.append(f"{name}.py:{line} {what}")
            print(f"  survives  {survivors[-1]}", flush=True)
    path.write_text(source)
    tried = range(before["tried"]) if before else tried
    killed = len(tried) - len(survivors)
    print(f"{name}: {killed} of {len(tried)} killed ({endless} by the clock; {len(every)} in all)", flush=True)
    return {"mutants": len(every), "tried": len(tried), "killed": killed, "endless": endless, "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), help=", ".join(TESTS))
    parser.add_argument("--sample", type=int, default=50, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", type=Path, help="where the result goes")
    parser.add_argument("--again", type=Path, help="the result of another run: its survivors alone, against new tests")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    print(f"seed {seed}, {asked.sample} mutants of each module", flush=True)
    for heavy in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(heavy)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for part in ("src", "tests", "tools", "examples", "docs"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / part, folder)
        found = {}
        before = json.loads(asked.again.read_text())["modules"] if asked.again else {}
        for name in [m for m in asked.modules if m in before or not before]:
            found[name] = try_module(name, folder, asked.sample, random.Random(f"{seed}/{name}"), before.get(name))
    tried, killed = (sum(f[k] for f in found.values()) for k in ("tried", "killed"))
    print(f"all: {killed} of {tried} killed, {100 * killed / tried:.0f} %")
    if asked.json:
        asked.json.write_text(json.dumps({"seed": seed, "modules": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
