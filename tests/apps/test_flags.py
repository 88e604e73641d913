"""The library speaks Python, the command line speaks flags."""

import ast
import re
from pathlib import Path

import pytest
import typer

from veilstream.apps.cli import app
from veilstream.apps.verbs.flags import in_flags

SOURCE = Path(__file__).parents[2] / "src" / "veilstream"
FIELD = re.compile(r"`[a-z]\w*(?:=[^`]*)?`")
OPTIONS = {o for verb in typer.main.get_command(app).commands.values() for p in verb.params for o in p.opts}


def test_flags_become_fewer_not_more():
    """Options over all commands, without --help. What a file or a URL can say needs no flag."""
    verbs = typer.main.get_command(app).commands
    options = [p for verb in verbs.values() for p in verb.params if p.param_type_name == "option"]
    assert len(options) <= 135


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("`min_samples` must be at least 1, found 0", "--option min-samples=... must be at least 1, found 0"),
        ("give one of `weight`, `max`", "give one of --weight, --max"),
        ("read with `gaps='bridge'` or `eps=50`", "read with --option gaps=bridge or --eps 50"),
        ("`columns='time=COLUMN'` names it", "--columns time=COLUMN names it"),
        ("(`force=True` to do it anyway)", "(--force to do it anyway)"),
        ("run `veil solve` on it first", "run `veil solve` on it first"),
    ],
)
def test_a_field_is_said_as_its_flag(line, said):
    assert in_flags(line) == said


def texts(path):
    """The strings of a module without its docstrings; a placeholder in an f-string is an x."""
    tree = ast.parse(path.read_text())
    inside = {id(v) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for v in node.values}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else "x" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


@pytest.mark.slow
def test_every_field_that_the_library_names_is_a_flag_of_some_verb():
    named = {f for path in SOURCE.rglob("*.py") for text in texts(path) for f in FIELD.findall(text)}
    unknown = {f for f in named for word in in_flags(f).split() if word.startswith("--") and word not in OPTIONS}
    assert not unknown - {"`x`"}  # a name that is filled in


@pytest.mark.slow
def test_flags_are_spoken_by_the_command_line_alone():
    """Commands quoted whole (`veil solve MODEL --avg 1km`) may hold them; lines about fields may not."""
    lone = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
    spoken = {
        f"{path.relative_to(SOURCE)}: {text[:80]}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[:2] != ("apps", "cli")
        and path != SOURCE / "apps" / "verbs" / "flags.py"  # which translates
        for text in texts(path)
        if lone.search(text) and "veil " not in text and not re.fullmatch(r"--[a-z-]+", text)
    }
    assert not spoken
