"""What `import veilstream as vs` promises: these names and no others."""

import ast
import doctest
from importlib.metadata import version
from pathlib import Path

import pytest

import veilstream as vs

NAMES = [
    "Advice",
    "Artefact",
    "Assessment",
    "Average",
    "BeliefPolicy",
    "Both",
    "Budget",
    "Controller",
    "Curve",
    "Evaluation",
    "FittedModel",
    "ImpossibleObservation",
    "InputError",
    "Instantaneous",
    "Judgement",
    "MarkovChain",
    "Policy",
    "Problem",
    "Recording",
    "Releaser",
    "Report",
    "Solution",
    "Started",
    "StateSpace",
    "__version__",
    "advise",
    "audit",
    "builtin",
    "builtin_problem",
    "curve",
    "evaluate",
    "fit",
    "judge",
    "load",
    "release",
    "release_many",
    "report",
    "save",
    "schedule",
    "solve",
    "start",
]


def test_the_public_names_are_these():
    assert sorted(vs.__all__) == NAMES == dir(vs)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_says_what_it_is(name):
    assert getattr(vs, name).__doc__


@pytest.mark.parametrize("name", [n for n in NAMES if n != "__version__"])
def test_every_public_name_has_an_example_that_runs(name):
    thing = getattr(vs, name)
    tests = [t for t in doctest.DocTestFinder(recurse=False).find(thing, name) if t.examples]
    assert tests, f"veilstream.{name} has no example"
    told = []
    for test in tests:
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    assert not told, "".join(told)


def test_type_checkers_see_what_is_imported_when_used():
    """The names under TYPE_CHECKING and those of the lazy table: the same, from the same modules."""
    (block,) = (node for node in ast.parse(Path(vs.__file__).read_text()).body if isinstance(node, ast.If))
    read = {(line.module, alias.name) for line in block.body for alias in line.names}
    assert read == {(module, name) for name, module in vs._HOME.items()}


def test_there_is_no_other_name():
    with pytest.raises(AttributeError, match="has no attribute 'solvr'"):
        _ = vs.solvr


def test_the_version_is_the_packages():
    assert vs.__version__ == version("veilstream")


def test_the_package_says_that_it_is_typed():
    assert (Path(vs.__file__).parent / "py.typed").is_file()
