"""What people install, tried as they would: `make packages`, minutes, with a package index.

python tools/packages.py [EXTRA ...]   builds sdist and wheel twice, checks them, installs every extra (or those named)
                                       alone into an empty environment and uses it there; keeps out/packages.json
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "packages.json"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "VIRTUAL_ENV"))}
IN_SDIST = {
    "pyproject.toml",
    "hatch_build.py",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    ".gitignore",
    "PKG-INFO",
}

METER = "time,kWh\n" + "".join(
    f"2024-01-{d:02}T{h:02}:00Z,{(h * d) % 7 / 10}\n" for d in range(1, 29) for h in range(24)
)
READING = '{"stream":"a","t":1700000000,"value":1.2}\n'
SERVED = """
import subprocess, sys, time, urllib.request
gateway = subprocess.Popen([sys.argv[1], "serve", "policy.veil", "--http", "18099", "--no-store"])
for _ in range(300):
    time.sleep(0.1)
    try:
        print(urllib.request.urlopen("http://127.0.0.1:18099/metrics").read().decode())
        break
    except OSError:
        pass
else:
    sys.exit("no answer")
gateway.terminate()
sys.exit(gateway.wait())
"""
ENV = """
import gymnasium, veilstream as vs, veilstream.deep.env
env = gymnasium.make("veilstream/BeliefRelease-v0", problem=vs.builtin_problem("grid2x3-toy", vs.Average(weight=1.0)))
env.reset(seed=0)
env.step(env.action_space.sample())
"""
BASE = ["veil --version", "veil solve builtin:grid4x4-q2 --lambda 1 --certify --seconds 1",
        "veil start --avg 1kW -o me.veil", "veil solve builtin:grid2x3-toy --lambda 1 -o policy.veil",
        "veil audit policy.veil --quick", "veil report policy.veil --shareable -o page.html --option seconds=1",
        "veil release policy.veil --no-store", "veil demo --seconds 1"]  # fmt: skip
POLICY = ["veil start --avg 1kW -o policy.veil"]
# what each extra is for: commands that fail without it
TRIED = {
    "": BASE,
    "data": ["veil fit meter.csv --unit kWh -o m.veil", "veil advise m.veil"],
    "plot": ["veil curve builtin:grid2x3-toy --plot curve.png"],
    "mqtt": [*POLICY, "veil serve policy.veil --mqtt localhost --show-config"],
    "http": [*POLICY, "python served.py {bin}/veil"],
    "nats": ["python -c import(nats,nkeys)"],
    "owntracks": ["python -c import(nacl.secret)"],
    "gateway": [*POLICY, "python served.py {bin}/veil"],
    "deep": ["veil solve builtin:grid2x3-toy --lambda 1 --method a2c --option steps=2000"],
    "env": ["python env.py"],
    "fleet": [
        "veil fleet meter.csv --unit kWh -o fleet --engine joblib --workers 2 --option certify=0 --option points=3"
    ],
    "demo": ["veil demo --seconds 1"],
    "docs": ["zensical --version"],
}


def run(*command: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=CLEAN, **more)  # type: ignore[call-overload,no-any-return]


def uv() -> str:
    found = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), CLEAN.get("PATH", "")]))
    if not found:
        sys.exit("needs uv: pip install uv")
    return found


def built(source: Path, to: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel made from the sdist."""
    done = run(uv(), "build", "--quiet", "--out-dir", to, source)
    if done.returncode:
        sys.exit(done.stderr)
    return next(to.glob("*.tar.gz")), next(to.glob("*.whl"))


def source_files(root: Path = ROOT) -> set[str]:
    """What of the package is under version control."""
    return set(run("git", "-C", root, "ls-files", "src/veilstream").stdout.split())


def wrong_in_wheel(wheel: Path, files: set[str]) -> set[str]:
    """Too much, or missing: exactly the package is in it, and its description."""
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    return names ^ {f.removeprefix("src/") for f in files}


def wrong_in_sdist(sdist: Path, files: set[str]) -> set[str]:
    with tarfile.open(sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    return names ^ files ^ IN_SDIST


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy_of_tree(to: Path, source: Path = ROOT) -> Path:
    """Another place, other times, other rights: the bytes must not know."""
    run("git", "clone", "--quiet", source, to)
    for path in to.rglob("*.py"):
        os.utime(path, (10**9, 10**9))
        path.chmod(0o600)
    return to


def megabytes(folder: Path) -> float:
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_symlink()) / 1e6


def try_extra(extra: str, wheel: Path, folder: Path) -> dict[str, object]:
    """Installed alone into an empty environment; every command of `TRIED` ends with 0 there."""
    place, work = folder / "venv" / "bin", folder / "work"
    work.mkdir(parents=True)
    (work / "meter.csv").write_text(METER)
    (work / "served.py").write_text(SERVED)
    (work / "env.py").write_text(ENV)
    run(uv(), "venv", "--quiet", "--python", sys.executable, folder / "venv")
    begin = time.monotonic()
    done = run(
        uv(),
        "pip",
        "install",
        "--quiet",
        "--no-cache",
        "--python",
        place / "python",
        f"{wheel}[{extra}]" if extra else wheel,
    )
    seconds = time.monotonic() - begin
    fault = done.stderr
    for line in TRIED[extra] if not fault else ():
        program, *rest = line.format(bin=place).split()
        rest = [f"import {r[7:-1]}" if r.startswith("import(") else r for r in rest]
        tried = run(place / program, *rest, cwd=work, input=READING)
        if tried.returncode:
            fault = f"{line}: {tried.stderr.strip().splitlines()[-1:]}"
            break
    return {"seconds": round(seconds, 1), "megabytes": round(megabytes(folder / "venv")), "fault": fault}


def main() -> int:
    faults, extras = [], sys.argv[1:] or list(TRIED)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = built(copy_of_tree(folder / "one"), folder / "a")
        os.umask(0o077)
        again = built(copy_of_tree(folder / "another", folder / "one"), folder / "b")
        facts: dict[str, object] = {"version": wheel.name.split("-")[1], "wheel_kb": wheel.stat().st_size // 1000}
        facts["same_bytes"] = [digest(sdist), digest(wheel)] == list(map(digest, again))
        facts["wrong_files"] = sorted(wrong_in_wheel(wheel, source_files()) | wrong_in_sdist(sdist, source_files()))
        shutil.rmtree(folder / "one" / ".git")
        facts["without_history"] = built(folder / "one", folder / "c")[1].name.split("-")[1]
        facts["twine"] = run(uv(), "tool", "run", "twine", "check", "--strict", sdist, wheel).stdout.count("PASSED")
        faults += ["two builds differ"] * (not facts["same_bytes"]) + [str(f) for f in facts["wrong_files"]]
        faults += ["a copy without history has no fallback"] * (not str(facts["without_history"]).endswith(".dev0"))
        faults += ["twine check"] * (facts["twine"] != 2)
        print(facts, flush=True)
        for extra in extras:
            found = try_extra(extra, wheel, folder / f"extra-{extra}")
            print(f"{extra or 'base':12}", found, flush=True)
            facts[extra or "base"] = found
            faults += [f"{extra}: {found['fault']}"] * bool(found["fault"])
            shutil.rmtree(folder / f"extra-{extra}")
        done = run(uv(), "tool", "run", "--from", wheel, "veil", "demo", "--seconds", "1", "-o", folder / "demo")
        faults += [f"uvx --from WHEEL veil demo: {done.stderr}"] * bool(done.returncode)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(facts, indent=1) + "\n")
    print(*(faults or ["everything installs alone and works"]), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
