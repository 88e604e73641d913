"""Documents cannot rot: links lead somewhere, names exist, python blocks run."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from types import SimpleNamespace

import pytest
import typer

import axe
import bench_tables
import cli_page
import console
import docs_site
import veilstream as vs
from browser import chromium
from patience import wait_until
from rooms import MODULES, ROOMS, ROOT
from veilcli import veil
from veilstream.apps.cli import app
from veilstream.gateway.stats import Stats

TEXT = {name: (ROOT / name).read_text() for name in docs_site.pages()}
OURS = [p for place in ("src", "tests", "docs", "tools", "examples") for p in (ROOT / place).rglob("*.*")]
FILES = [str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.*"), *OURS]]
README_LINES = 90  # two screens

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
ROOM = "|".join(sorted({name.split(".")[0] for level in ROOMS for name in level}))
DOTTED = re.compile(rf"(?:veilstream\.)?((?:{ROOM})(?:\.\w+)+)(?:\(.*\))?$")
FILE_NAME = re.compile(r"[\w./-]*\w\.(?:py|md|svg|toml|cff)$")


def prose(text):
    """The text without its fenced blocks."""
    return FENCE.sub("", text)


# --- links -----------------------------------------------------------------------------------------------


def anchors(text):
    titles = re.findall(r"^#+ (.+)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", t).lower()).strip().replace(" ", "-") for t in titles}


def links(name):
    return [target for target in LINK.findall(prose(TEXT[name])) if "://" not in target]


def target_of(name, target):
    path, _, anchor = target.partition("#")
    return os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name, anchor


@pytest.mark.parametrize("name", TEXT)
def test_every_link_leads_somewhere(name):
    for link in links(name):
        path, anchor = target_of(name, link)
        assert (ROOT / path).exists(), f"{name} links to {link}"
        assert not anchor or anchor in anchors(TEXT[path]), f"{path} has no heading {anchor}"


def test_every_document_is_found_from_the_readme():
    seen, todo = set(), ["README.md"]
    while todo:
        name = todo.pop()
        if name in TEXT and name not in seen:
            seen.add(name)
            todo += [target_of(name, link)[0] for link in links(name)]
    assert seen == set(TEXT)


def test_every_document_has_one_place_in_the_navigation():
    assert sorted(docs_site.listed()) == sorted(TEXT)


SHADOWS = "return [...document.querySelectorAll('*')].map(e => e.shadowRoot?.textContent ?? '').join(' ')"
TYPING = "const e = document.activeElement; return (e.shadowRoot?.activeElement ?? e).tagName === 'INPUT'"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if not docs_site.builder():
        pytest.skip("needs zensical: pip install 'veilstream[docs]'")
    folder = tmp_path_factory.mktemp("site")
    docs_site.stage(folder / "docs")
    done = docs_site.build(folder)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(built):
    assert docs_site.loads_from_elsewhere(built) == [] and docs_site.broken_lists(built) == []
    assert len(list(built.rglob("*.html"))) == len(TEXT) + 1  # and the page for what is not there


@pytest.mark.slow
@pytest.mark.browser
def test_axe_finds_nothing_serious_and_search_works_from_a_file(built, tmp_path):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    with chromium(tmp_path / "profile") as browser:
        browser.get((built / "docs" / "hours.html").as_uri())
        ActionChains(browser).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
        wait_until(lambda: browser.execute_script(TYPING))
        ActionChains(browser).send_keys("ceiling").perform()
        wait_until(lambda: re.search(r"\d+ results", browser.execute_script(SHADOWS)))
        assert axe.findings(browser, (built / "docs" / "formats.html").as_uri()) == {}


@pytest.mark.parametrize(
    ("written", "loads"),
    [
        ('<script src="https://a.org/x.js">', True),
        ("<link rel=stylesheet href=//a.org/x.css>", True),
        ("a { background: url(https://a.org/x.png) }", True),
        ('<img alt="" src="../demo.png">', False),
        ('<a href="https://a.org/">there</a>', False),
    ],
)
def test_the_search_for_what_is_loaded_finds_and_misses(written, loads, tmp_path):
    (tmp_path / "page.html").write_text(written)
    assert docs_site.loads_from_elsewhere(tmp_path) == (["page.html"] if loads else [])


def test_the_readme_says_what_the_demo_printed():
    """Its figures are those that tools/console.py wrote into the tutorial."""
    told = re.search(r"planar Laplace: ([\d.]+) bits per step, ours ([\d.]+); the\s+truth ([\d.]+)", TEXT["README.md"])
    demo = TEXT["docs/tutorials/demo.md"]
    row = re.search(r"^ 0\.5 km +([\d.]+) .* ([\d.]+) ± [\d.]+ +([\d.]+) +\d+ ±", demo, re.M)
    truth = re.search(r"truth reveals ([\d.]+) bits", demo)[1]
    assert told.groups() == (f"{float(row[2]):.3f}", f"{float(row[1]):.3f}", truth)
    assert 2.5 < float(row[3]) < 3.5  # "a third"


def test_the_recorded_session_is_small_and_stands_alone():
    text = (ROOT / "docs" / "session.svg").read_text()
    assert len(text) < 200_000 and "<script" not in text and "http" not in text.replace("http://www.w3.org/", "")
    assert 100 < float(re.search(r"(\d+) seconds", text)[1]) < 140


def test_the_readme_stays_short():
    assert len(TEXT["README.md"].splitlines()) <= README_LINES


# --- programs --------------------------------------------------------------------------------------------


def program(name):
    """All python blocks of a page, in order, as one program; other lines are blank, so that errors name the line."""
    text, lines = TEXT[name], [""] * len(TEXT[name].splitlines())
    for block in FENCE.finditer(text):
        if block[1] == "python":
            first = text.count("\n", 0, block.start(2))
            own = block[2].splitlines()
            lines[first : first + len(own)] = own
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in TEXT if "```python" in TEXT[n] and "```console" not in TEXT[n]])
def test_what_is_fenced_as_python_runs(name, tmp_path):
    code = f"exec(compile({program(name)!r}, {name!r}, 'exec'))"
    here = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


QUICK = ("README.md", "docs/tutorials/home.md")  # others take up to half a minute: make tutorials CHECK=1


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_tutorial_can_be_followed_and_says_what_its_commands_print(name):
    command = [sys.executable, ROOT / "tools" / "console.py", "--check", ROOT / name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("leakage 0.4404 bits", "leakage 0.4405 bits", True),
        ("leakage 0.4404 bits", "leakage 0.5404 bits", False),
        ("converged; 0.2 s", "converged; 9.1 s", True),
        ("proved: gap 0.15%", "proved: gap 1.04%", True),
        ("mean error: 1 km", "mean error: 3 km", True),
        ("error: 1 km", "error: 3 km", False),
        ("named in 31 %", "not named in 31 %", False),
        ("one line", "one line\nand another", False),
    ],
)
def test_what_counts_as_out_of_date(was, now, same):
    assert (console.differs(was, now) is None) is same


FIGURE = re.compile(r"(?<![\w.`])\d+\.\d+(?![\w.`])")
COMMAND = re.compile(r"^    veil |`[^`]*(?:\bveil \w|\bmake \w|\bpython |tools/\w+\.py|tests/[\w/]+\.py)", re.M)
MANY = 4  # figures in a section that somebody must have measured


def unnamed(text):
    """Sections with figures and without the command that gives them."""
    parts = re.split(r"^(?=## )", text, flags=re.M)
    return [
        part.partition("\n")[0]
        for part in parts
        if len(FIGURE.findall(prose(part))) >= MANY and not COMMAND.search(part)
    ]


@pytest.mark.parametrize("name", [n for n in TEXT if n.startswith("docs/")])
def test_where_figures_stand_a_command_is_named(name):
    assert not unnamed(TEXT[name])


def test_tables_of_benchmarks_have_the_form_that_these_print():
    """Written by tools/bench_tables.py; every benchmark that prints a table has its place."""
    there = bench_tables.blocks()
    names = {p.stem for p in (ROOT / "benchmarks").glob("*.py") if "\nTABLE" in p.read_text()}
    assert set(there) == names
    for name, (_, block) in there.items():
        table = block[0].removeprefix(block[1]).removesuffix(block[4])
        assert bench_tables.fault(table, bench_tables.benchmark(name)) is None, "run: python tools/bench_tables.py"


def test_a_table_edited_by_hand_is_found():
    bench = SimpleNamespace(WHO="who", TABLE={"bits": "{bits:.3f}", "off": "{off:+.1%} of {n}"})
    head = "| who | bits | off |\n|---|---|---|\n"
    assert bench_tables.fault(head + "| ann | 0.123 | +1.0% of 20 |\n| ben | no data |  |", bench) is None
    for row in ("| ann | 0.12 | +1.0% of 20 |", "| ann | 0.123 | 1 % |", "| ann | 0.123 |"):
        assert bench_tables.fault(head + row, bench) == row
    assert bench_tables.fault("| who | bit | off |\n|---|---|---|\n| ann | 0.123 | +1.0% of 20 |", bench)
    assert bench_tables.pattern("{a:.2f}") == r"[+-]?[\d,]+\.\d{2}"


def test_the_search_for_figures_finds_and_misses():
    bare = "## Fast\n\n| 1.5 | 2.5 |\n| 3.5 | 4.5 |\n"
    assert unnamed(bare) == ["## Fast"] and not unnamed(bare + "(`make bench`)\n") and not unnamed("## One\n\n1.5\n")


# --- names -----------------------------------------------------------------------------------------------


def defined(tree):
    """Names that a module or class body gives: definitions, assignments, imports."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from ((n.id, node) for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((a.asname or a.name, node) for a in node.names)


def exists(dotted):
    """Whether core.problem.Budget.bits and the like are there, looked up in the source."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        module = ".".join(parts[:n])
        if module in MODULES:
            body = ast.parse(MODULES[module].read_text())
            for name in parts[n:]:
                found = dict(defined(body)) if hasattr(body, "body") else {}
                if name not in found:
                    return False
                body = found[name]
            return True
    return False


def test_the_finder_of_names_finds_and_misses():
    assert exists("model.problem.Problem.cost") and exists("solvers.solve") and exists("gateway.nats")
    assert not exists("model.problem.Problem.price") and not exists("core.nonsense") and not exists("solvers.dissolve")


@pytest.mark.parametrize("name", TEXT)
def test_every_dotted_name_of_ours_exists(name):
    quoted = [q for q in QUOTED.findall(prose(TEXT[name])) if not q.endswith(".veil")]
    missing = {m[1] for q in quoted if (m := DOTTED.match(q)) and not FILE_NAME.match(q) and not exists(m[1])}
    assert not missing


def ours(name):
    return any(f == name or f.endswith("/" + name.lstrip("./")) for f in FILES)


@pytest.mark.parametrize("name", TEXT)
def test_every_file_named_is_in_the_repository(name):
    assert not [q for q in QUOTED.findall(prose(TEXT[name])) if FILE_NAME.match(q) and not ours(q)]


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("module", MODULES)
def test_no_docstring_speaks_of_what_is_not_in_the_repository(module):
    for text in docstrings(MODULES[module]):
        assert not re.search(r"\bTHEORY\b|\bDESIGN\b|\bSTYLE\b|\bprototype|\bissue \d", text), text
        assert not [q for q in QUOTED.findall(text) if FILE_NAME.match(q) and not ours(q)], text
        assert not [m for m in re.findall(r"docs/\w+\.md", text) if m not in TEXT], text


def test_the_vocabulary_owns_up_to_every_class_name_used_twice():
    where = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    twice = {name for name, n in where.items() if n > 1 and not name.startswith("_")}
    section = TEXT["docs/notation.md"].partition("### Class names used twice")[2].partition("\n#")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.M)) == twice


# --- the command line, its JSON, metrics --------------------------------------------------------------------


def test_the_page_of_the_command_line_says_every_command_and_flag():
    assert TEXT["docs/cli.md"] == cli_page.page(), "run: python tools/cli_page.py"


def flags():
    verbs = typer.main.get_command(app).commands
    return [(verb, flag) for verb in verbs for p in verbs[verb].params for flag in p.opts if flag.startswith("-")]


def test_no_flag_goes_without_a_word():
    verbs = typer.main.get_command(app).commands
    assert not [(verb, p.name) for verb in verbs for p in verbs[verb].params if not p.help]
    sections = dict(re.findall(r"^## `veil (\w+)`$(.*?)(?=^## |\Z)", TEXT["docs/cli.md"], re.S | re.M))
    assert not [(verb, flag) for verb, flag in flags() if f"`{flag}`" not in sections[verb]]


def keys(value):
    """Every key of a JSON value, at any depth."""
    if isinstance(value, dict):
        return set(value) | {k for v in value.values() for k in keys(v)}
    return {k for v in value for k in keys(v)} if isinstance(value, list) else set()


@pytest.mark.slow
def test_every_key_that_a_command_prints_is_on_the_page_of_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = set(QUOTED.findall(TEXT["docs/json.md"]))
    for line in (
        "fit synthetic:city:1000 -o city.veil",
        "solve city.veil --avg 40% -o policy.veil",
        "solve builtin:grid2x3-toy --lambda 1 --certify --seconds 0.5",
        "audit policy.veil --quick",
        "start --avg 0.4kW -o meter.veil",
        "strip city.veil -o stripped.veil",
    ):
        done = veil(*line.split(), "--json")
        assert done.returncode == 0, done.stderr
        names = set(vs.load("city.veil").states.names)  # people's own words, and those of methods, are no keys
        assert not keys(json.loads(done.stdout)) - told - names, line


def test_every_metric_is_on_its_page():
    families = Stats(0, []).collect()
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert set(re.findall(r"^\| `(\w+)", TEXT["docs/metrics.md"], re.M)) == names


# --- what is said in several places ------------------------------------------------------------------------


def test_one_version_everywhere():
    """The package has its own from the tag; a release checks that they agree (docs/releasing.md)."""
    version = re.search(r"^## \[.*?(\d+\.\d+\.\d+)", TEXT["CHANGELOG.md"], re.M)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert (
        f'\nversion: "{version}"\n' in (ROOT / "examples" / "homeassistant" / "veilstream" / "config.yaml").read_text()
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["fallback-version"] == f"{version}.dev0"
