"""The path of one reading to its committed release, in numbers: python tools/trace_release.py [--calls]

One message is read and processed with a store on the disk, for a stream that exists already. Counted are calls of
named functions of this package (a comprehension is part of its function), the modules they are in, and how often
control goes from one module to another; --calls prints them, indented as they nest.
"""

import sys
import tempfile
from inspect import CO_GENERATOR
from itertools import pairwise
from pathlib import Path

from veilstream.artefact import load, save
from veilstream.control.controller import Controller
from veilstream.gateway.core import Core
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import parse
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average

PACKAGE = str(Path(sys.modules["veilstream"].__file__ or "").parent)


def trace(core: Core, line: bytes) -> list[tuple[int, str, str]]:
    """Depth, module and function of every call of ours while this line is released."""
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
        core.process(parse(line, core.spaces[""].grid))
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    table = problem.allowed / problem.allowed.sum(1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "policy.veil")
        save(file, Controller.of_table(table[None], 0), problem=problem)
        space = Space(load(file))
        core = Core({"": space}, Store(Path(folder, "store.db"), {"": space.binding}))
        trace(core, b'{"stream":"ann","t":1,"value":3}\n')  # the first reading of a stream makes it
        calls = trace(core, b'{"stream":"ann","t":2,"value":3}\n')
        core.close()
    modules = [module for _, module, _ in calls]
    switches = sum(a != b for a, b in pairwise(modules))
    if "--calls" in sys.argv:
        for depth, module, name in calls:
            print(f"{'  ' * depth}{module}.{name}")
    print(f"{len(set(modules))} modules, {len(calls)} calls, {switches} switches of module")


if __name__ == "__main__":
    main()
