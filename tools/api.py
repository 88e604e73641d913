"""The reference of the Python API, made from the docstrings of its public names.

python tools/api.py           writes docs/api.md
python tools/api.py --check   says whether it is up to date (exit code 1 if not)
"""

import inspect
import re
import sys
from pathlib import Path
from textwrap import dedent

import veilstream as vs
from pages import keep

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
GROUPS = {
    "From data to releases": ["start", "fit", "advise", "solve", "curve", "audit", "judge", "report", "release"],
    "What they give": ["FittedModel", "Advice", "Started", "Solution", "Curve", "Assessment", "Judgement", "Report"],
    "Files": ["Artefact", "load", "save"],
    "Problems": ["MarkovChain", "Problem", "Average", "Instantaneous", "Both", "Budget", "builtin", "builtin_problem"],
    "Policies at work": ["Policy", "Controller", "schedule", "BeliefPolicy", "Releaser", "release_many",
                         "evaluate", "Evaluation"],
    "Readings": ["Recording", "StateSpace"],
    "What goes wrong": ["InputError", "ImpossibleObservation"],
}  # fmt: skip
HEAD = """# The Python API

Every public name, from its own docstring (`help(vs.fit)` says the same); written by `tools/api.py`. Every example is
run by the tests. `import veilstream as vs` loads nothing heavy: a name is imported when it is first used.

A DataFrame to a released DataFrame, in five lines:

```python
import pandas as pd, veilstream as vs
from veilstream.data.synthetic import city            # made up; your own: df = pd.read_csv("walks.csv")

person = city(2000)
df = pd.DataFrame({"time": person.t_s, "lat": person.points[:, 0], "lon": person.points[:, 1]})
model = vs.fit(df)                                    # states and a Markov chain; model.plot()
solution = vs.solve(model, avg="500m")                # the policy that leaks least; solution.plot()
shared = vs.release(solution, df, store="me.db")      # one draw per step, ever
```

Three notebooks go further: [my GPS traces](../examples/my_gps_traces.ipynb), [my meter](../examples/my_meter.ipynb),
[my own mechanism against ours](../examples/my_own_mechanism.ipynb).
"""


def page() -> str:
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n")
        parts += [entry(name) for name in names]
    return re.sub(r"(?<=\S) {3,}# ", "  # ", "\n".join(parts))  # as the formatter of the repository has it


def entry(name: str) -> str:
    thing = getattr(vs, name)
    text = inspect.cleandoc(thing.__doc__ or "")
    out = [f"### `{name}`\n", f"```text\n{signature(name, thing)}\n```\n", markdown(text)]
    for method in methods(thing):
        doc = " ".join(inspect.cleandoc(getattr(thing, method).__doc__).split("\n\n")[0].split())
        out.append(f"- `.{method}`: {doc}")
    return "\n".join(out) + "\n"


def signature(name: str, thing: object) -> str:
    """One parameter a line where they are many; annotations as they are written."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    parts = [str(p).replace("'", "") if p.annotation is p.empty else _parameter(p) for p in found.parameters.values()]
    back = (
        ""
        if found.return_annotation is found.empty or inspect.isclass(thing)
        else f" -> {_hint(found.return_annotation)}"
    )
    parts = _with_star(list(found.parameters.values()), parts)
    line = f"{name}({', '.join(parts)}){back}"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {p},\n" for p in parts) + f"){back}"


def _with_star(parameters: list[inspect.Parameter], parts: list[str]) -> list[str]:
    lone = [i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY]
    return parts if not lone else [*parts[: lone[0]], "*", *parts[lone[0] :]]


def _parameter(p: inspect.Parameter) -> str:
    star = {p.VAR_KEYWORD: "**", p.VAR_POSITIONAL: "*"}.get(p.kind, "")
    default = (
        ""
        if p.default is p.empty
        else f" = {'...' if ' at 0x' in repr(p.default) or repr(p.default).startswith('<') else repr(p.default)}"
    )
    return f"{star}{p.name}: {_hint(p.annotation)}{default}"


def _hint(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(
        r"(?:numpy\.typing|numpy|os|typing|collections\.abc|veilstream(?:\.\w+)+?)\.(?=[A-Z\w])", "", str(text)
    )
    return text.replace("ndarray[tuple[Any, ...], dtype[float64]]", "Array")


def methods(thing: object) -> list[str]:
    """Public ones that say what they do, of its own class or those it is shown by."""
    if not inspect.isclass(thing):
        return []
    found = [n for n, v in vars(thing).items() if not n.startswith("_") and _says(v)]
    return [n for n in found if n != "about"]


def _says(v: object) -> bool:
    v = getattr(v, "func", v) if type(v).__name__ == "cached_property" else v
    return bool(getattr(v, "__doc__", None)) and (callable(v) or isinstance(v, property | classmethod))


def markdown(text: str) -> str:
    """Examples as blocks, lists of parameters as they stand, the rest as prose."""
    out: list[str] = []
    for block in re.split(r"\n{2,}", text):
        if block.lstrip().startswith(">>>"):
            out.append(f"```pycon\n{dedent(block)}\n```")
        elif (
            re.search(r"^\S.*\n {4}", block) or block.startswith("    ") or re.search(r"^\w[\w, ]* {2,}\S", block, re.M)
        ):
            out.append(f"```text\n{dedent(block)}\n```")
        else:
            out.append(block)
    return "\n\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(keep(PAGE, page()))
