"""The package as people get it: built, installed into an empty environment, used there."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import packages

ROOT = Path(__file__).parents[1]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "VIRTUAL_ENV"))}


def run(*command, **more) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=CLEAN, **more)


@pytest.fixture(scope="module")
def uv(tmp_path_factory):
    """uv beside this Python or on the path; else from the index, and without one there is nothing to install from."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        folder = tmp_path_factory.mktemp("uv") / "venv"
        made = run(sys.executable, "-m", "venv", folder)
        if made.returncode or run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "uv").returncode:
            pytest.skip("needs uv: pip install uv")
        found = str(folder / "bin" / "uv")
    probe = tmp_path_factory.mktemp("probe")
    if run(found, "pip", "install", "--quiet", "--target", probe, "hatchling").returncode:
        pytest.skip("needs a package index to install from")
    return found


@pytest.fixture(scope="module")
def installed(uv, tmp_path_factory):
    """The folder of the commands of an environment that holds the wheel and what it asks for, no extra."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(uv, "build", "--out-dir", folder / "dist", ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,), (sdist,) = ((folder / "dist").glob(kind) for kind in ("*.whl", "*.tar.gz"))
    if (ROOT / ".git").exists():
        files = packages.source_files()
        assert not packages.wrong_in_wheel(wheel, files) and not packages.wrong_in_sdist(sdist, files)
    archive = zipfile.ZipFile(wheel)
    about = next(name for name in archive.namelist() if name.endswith("/METADATA"))
    assert "](docs/" not in archive.read(about).decode()  # README as PyPI shows it
    assert run(uv, "venv", "--python", sys.executable, folder / "venv").returncode == 0
    place = folder / "venv" / "bin"
    done = run(uv, "pip", "install", "--quiet", "--python", place / "python", wheel)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def on_pypi(monkeypatch):
    """hatch_build.py; hatchling itself is there only while something is built."""
    hook = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", hook)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_lead_somewhere_from_pypi_too(on_pypi):
    readme = (ROOT / "README.md").read_text()
    plain, linked = on_pypi.shown(readme, ""), on_pypi.shown(readme, "https://host.example/us/veilstream")
    assert "](" not in plain and "![" not in plain and "my GPS traces, my meter" in plain
    found = re.findall(r"\]\(([^)]+)\)", linked)
    assert len(found) == readme.count("](")
    for path in (url.removeprefix("https://host.example/us/veilstream/").partition("/HEAD/")[2] for url in found):
        assert path and (ROOT / path).exists()
    assert "/raw/HEAD/docs/demo.png" in linked
    assert on_pypi.shown("[a](https://b.org) [c](#d)", "") == "[a](https://b.org) [c](#d)"
    assert on_pypi.urls("") == {} and on_pypi.urls("https://h.example/v")["Repository"] == "https://h.example/v"


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_in_an_empty_environment(installed, tmp_path):
    done = run(installed / "veil", "demo", "-o", "made", "--seconds", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (tmp_path / told["report"]).stat().st_size > 100_000 and told["picture"] is None  # that needs matplotlib
    for point, limit_km in zip(told["points"], (0.25, 0.5, 1.0), strict=True):
        assert point["distortion"] <= limit_km + 1e-6


@pytest.mark.slow
def test_the_wheel_holds_what_it_needs_and_says_its_version(installed):
    code = "import os, veilstream; print(*os.listdir(os.path.dirname(veilstream.__file__)))"
    there = run(installed / "python", "-c", code).stdout.split()
    assert {"py.typed", "apps", "control", "gateway"} <= set(there) and "tests" not in there
    (told,) = installed.parent.glob("lib/python*/site-packages/veilstream-*.dist-info")
    version = told.name.removeprefix("veilstream-").removesuffix(".dist-info")
    assert run(installed / "veil", "--version").stdout == f"veil {version}\n"


@pytest.mark.slow
def test_completion_is_installed_for_the_shell_it_is_asked_from(installed, tmp_path, monkeypatch):
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    monkeypatch.setitem(CLEAN, "HOME", str(tmp_path))
    done = run("bash", "-c", f"{installed}/veil --install-completion; true")
    assert "bash completion installed" in done.stdout, done.stderr
    ask = f"source {tmp_path}/.bash_completions/veil.sh; PATH={installed}:$PATH; COMP_WORDS=(veil so); COMP_CWORD=1; "
    done = run("bash", "-c", ask + "_veil_completion veil; echo ${COMPREPLY[@]}")
    assert done.stdout.split() == ["solve"], done.stderr


@pytest.mark.slow
def test_what_needs_no_data_needs_no_extra(installed, tmp_path):
    """Solve, audit and page of a policy; `make packages` tries what each extra is for."""
    for line in (
        "solve builtin:binary --avg 0.1 -o policy.veil",
        "audit policy.veil --quick",
        "report policy.veil --shareable --option seconds=0 --option points=3 -o page.html",
    ):
        done = run(installed / "veil", *line.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    refused = run(installed / "veil", "fit", "meter.csv", cwd=tmp_path)
    assert refused.returncode == 2 and "pip install 'veilstream[data]'" in refused.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_understood_and_shuts_the_gateway_in(tmp_path):
    text = (ROOT / "examples" / "gateway" / "veil-gateway.service").read_text()
    assert "/opt/veil/bin/veil serve" in text
    unit = tmp_path / "veil-gateway.service"
    unit.write_text(text.replace("/opt/veil/bin/veil", "/bin/true"))
    read = run("systemd-analyze", "verify", unit)
    assert read.returncode == 0 and unit.name not in read.stderr, read.stderr
    shut = run("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=15", unit)
    if "offline" in shut.stderr:
        pytest.skip("this systemd-analyze judges running units only")
    assert shut.returncode == 0, shut.stdout


def test_the_container_is_built_in_two_stages_and_runs_as_nobody():
    """No engine is at hand to build it: what can be read off it."""
    lines = (ROOT / "examples" / "gateway" / "Containerfile").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", " "))]
    stages = [i for i, line in enumerate(commands) if line.startswith("FROM ")]
    last = commands[stages[-1] :]
    assert len(stages) == 2 and commands[stages[0]].endswith(" AS build") and "-slim" in last[0]
    assert [line for line in last if line.startswith("USER ")] == ["USER veil"]
    assert not [line for line in last if line.startswith(("COPY", "ADD"))]  # nothing but what is installed
    assert any(line.startswith("ENTRYPOINT [") for line in last)
    seen = {word for line in commands if line.startswith("COPY ") for word in line.split()[1:-1]}
    let_in = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in seen)
    assert all(name in let_in or any(Path(name).match(pattern) for pattern in let_in) for name in seen)


def test_everything_we_ask_for_is_locked_and_no_host_is_named():
    text = (ROOT / "requirements.lock").read_text()
    locked = {line.partition("==")[0] for line in text.splitlines()}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {re.match(r"[A-Za-z0-9-]+", need)[0].lower() for extra in extras.values() for need in extra}
    assert asked - {"veilstream"} <= locked and "://" not in text


def test_the_container_is_built_from_a_version_and_sees_nothing_but_what_it_needs():
    bases = re.findall(r"^FROM (\S+)", (ROOT / "examples" / "gateway" / "Containerfile").read_text(), re.M)
    assert bases and all(re.search(r":\d+\.\d+\.\d+", base) for base in bases)
    lines = [line for line in (ROOT / ".containerignore").read_text().splitlines() if line and line[0] != "#"]
    let_in = {line for line in lines if line.startswith("!")}
    assert lines[0] == "*"
    assert let_in == {
        "!src",
        "!pyproject.toml",
        "!hatch_build.py",
        "!README.md",
        "!LICENSE",
        "!examples/gateway/*.lock",
    }


def test_the_container_installs_by_hash_what_the_gateway_asks_for():
    """No host name stands in the lock: it is good for any index that has these files."""
    folder = ROOT / "examples" / "gateway"
    build = (folder / "Containerfile").read_text()
    assert build.count("--require-hashes") == 2 and "latest" not in build
    for name in ("requirements.lock", "build.lock"):
        text = (folder / name).read_text()
        pins = [line for line in text.splitlines() if line and not line.startswith(" ")]
        assert "://" not in text and all("==" in pin and pin.endswith("\\") for pin in pins)
        assert text.count("--hash=sha256:") >= len(pins) and name in build
    locked = {line.partition("==")[0] for line in (folder / "requirements.lock").read_text().splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + [need for extra in ("mqtt", "http", "nats") for need in extras[extra]]
    assert {re.match(r"[a-z0-9-]+", need)[0] for need in asked} <= locked
