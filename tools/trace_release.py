"""Two paths through the source, in numbers: python tools/trace_release.py [--calls]

One message to its committed release, with a store on the disk, for a stream that exists already; and a model's file to
its policy's file (an invented city, a limit on the mean). Counted are calls of named functions of this package (a
comprehension is part of its function), the modules they are in, and how often control goes from one module to another;
--calls prints those of the first, indented as they nest.
"""

import sys
import tempfile
from collections.abc import Callable
from inspect import CO_GENERATOR
from itertools import pairwise
from pathlib import Path

import veilstream as vs
from veilstream.control.controller import Controller
from veilstream.data.synthetic import city
from veilstream.gateway.core import Core
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import parse
from veilstream.model.builtin import builtin_problem

PACKAGE = str(Path(sys.modules["veilstream"].__file__ or "").parent)


def trace(run: Callable[[], object]) -> list[tuple[int, str, str]]:
    """Depth, module and function of every call of ours while this runs."""
    calls: list[tuple[int, str, str]] = []
    depth = 0

    def watch(frame, event, _) -> None:
        nonlocal depth
        code = frame.f_code
        own = code.co_filename.startswith(PACKAGE) and "<" not in code.co_name
        if not own or event not in ("call", "return") or (code.co_flags & CO_GENERATOR and frame.f_lasti > 4):
            return
        if event == "call":
            module = code.co_filename.removeprefix(PACKAGE + "/").removesuffix(".py").replace("/", ".")
            calls.append((depth, module, code.co_qualname))
            depth += 1
        else:
            depth -= 1

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def in_numbers(calls: list[tuple[int, str, str]]) -> str:
    modules = [module for _, module, _ in calls]
    switches = sum(a != b for a, b in pairwise(modules))
    return f"{len(set(modules))} modules, {len(calls):,} calls, {switches:,} switches of module"


def reading(folder: Path) -> list[tuple[int, str, str]]:
    """To its committed release."""
    problem = builtin_problem("grid4x4-q2", vs.Average(weight=1.0))
    table = problem.allowed / problem.allowed.sum(1, keepdims=True)
    vs.save(folder / "policy.veil", Controller.of_table(table[None], 0), problem=problem)
    space = Space(vs.load(folder / "policy.veil"))
    core = Core({"": space}, Store(folder / "store.db", {"": space.binding}))
    for t in (1, 2):  # the first reading of a stream makes it
        line = b'{"stream":"ann","t":%d,"value":3}\n' % t
        calls = trace(lambda line=line: core.process(parse(line, core.spaces[""].grid)))  # type: ignore[misc]
    core.close()
    return calls


def model(folder: Path) -> list[tuple[int, str, str]]:
    """To its policy."""
    person = city(2000)
    lat, lon = person.points.T
    vs.fit({"time": person.t_s, "lat": lat, "lon": lon}, progress=False).save(folder / "me.veil")
    vs.solve(folder / "me.veil", avg="500m")  # what is imported on the way is no call of ours
    return trace(lambda: vs.solve(folder / "me.veil", avg="500m").save(folder / "policy.veil"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        calls = reading(Path(folder))
        if "--calls" in sys.argv:
            for depth, module, name in calls:
                print(f"{'  ' * depth}{module}.{name}")
        print("reading to release:", in_numbers(calls))
        print("model to policy:", in_numbers(model(Path(folder))))


if __name__ == "__main__":
    main()
