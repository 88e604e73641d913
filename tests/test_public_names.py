"""What `import veilstream as vs` promises: these names and no others."""

from importlib.metadata import version
from pathlib import Path

import pytest

import veilstream as vs

NAMES = [
    "Artefact",
    "Average",
    "BeliefPolicy",
    "Both",
    "Budget",
    "Evaluation",
    "ImpossibleObservation",
    "InputError",
    "Instantaneous",
    "LocalPolicy",
    "MarkovChain",
    "Problem",
    "Recording",
    "Releaser",
    "Schedule",
    "Solution",
    "StateSpace",
    "WindowPolicy",
    "__version__",
    "builtin",
    "builtin_problem",
    "curve",
    "evaluate",
    "load",
    "release_many",
    "save",
    "solve",
]


def test_the_public_names_are_these():
    assert sorted(vs.__all__) == NAMES == dir(vs)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_says_what_it_is(name):
    assert getattr(vs, name).__doc__


def test_there_is_no_other_name():
    with pytest.raises(AttributeError, match="has no attribute 'solvr'"):
        _ = vs.solvr


def test_the_version_is_the_packages():
    assert vs.__version__ == version("veilstream")


def test_the_package_says_that_it_is_typed():
    assert (Path(vs.__file__).parent / "py.typed").is_file()
