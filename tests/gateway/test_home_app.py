"""The app for Home Assistant: its files agree with each other and with `veil serve`. No Supervisor is at hand."""

import re
import runpy
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gatewaykit import artefact, places
from veilcli import veil
from veilstream.gateway.guard import HttpSettings

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[2] / "examples" / "homeassistant" / "veilstream"
CONFIG = yaml.safe_load((FOLDER / "config.yaml").read_text())
RUN = runpy.run_path(str(FOLDER / "run.py"))
BROKER = {"host": "core-mosquitto", "port": 1883, "username": "addons", "password": "open sesame", "ssl": True}
FULL = {
    **CONFIG["options"],
    "clock": True,
    "ceiling": 50.0,
    "token": "a token of decent length",
    "owntracks_key": "phone",
    "forward": "http://recorder/secret",
}


def test_every_option_has_a_schema_a_translation_and_a_use():
    words = yaml.safe_load((FOLDER / "translations" / "en.yaml").read_text())
    assert set(words["configuration"]) == set(CONFIG["schema"]) == set(FULL) >= set(CONFIG["options"])
    assert set(words["network"]) == set(CONFIG["ports"])
    required = {name for name, kind in CONFIG["schema"].items() if not kind.endswith("?")}
    assert required == set(CONFIG["options"])
    arguments, secrets = RUN["command"](FULL, BROKER)
    for name, value in FULL.items():
        without, others = RUN["command"](
            {**FULL, name: {"policy": "x", "topics_in": "x", "topics_out": "x"}.get(name)}, BROKER
        )
        assert (without, others) != (arguments, secrets), f"{name}={value} changes nothing"


def test_no_secret_is_on_the_command_line():
    arguments, secrets = RUN["command"](FULL, BROKER)
    for name in ("token", "owntracks_key", "forward"):
        assert FULL[name] not in arguments and FULL[name] in secrets.values()
    assert BROKER["password"] not in arguments and secrets["VEIL_MQTT_PASSWORD"] == BROKER["password"]


@pytest.mark.parametrize("options", [CONFIG["options"], FULL])
def test_the_command_is_one_that_veil_takes(tmp_path, monkeypatch, options):
    """With the policy of another folder, and a broker that is nowhere: it comes as far as the store."""
    artefact(tmp_path / "policy.veil", states=places(), period_s=60.0)
    arguments, secrets = RUN["command"](options, {k: v for k, v in BROKER.items() if k != "ssl"})
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    text = [a.replace("/config/", f"{tmp_path}/").replace("/data/", f"{tmp_path}/none/") for a in arguments[1:]]
    done = veil(*text)
    assert done.returncode == 2 and "cannot open the store" in done.stderr


def test_what_the_proxy_needs_is_what_the_app_asks_for():
    assert CONFIG["ingress"] and CONFIG["ingress_port"] == RUN["PORT"]
    assert HttpSettings(RUN["PORT"], "0.0.0.0", ingress=RUN["PROXY"]).ingress == "172.30.32.2"
    assert CONFIG["map"] == [{"type": "app_config", "read_only": True}]
    assert not {"host_network", "privileged", "full_access", "hassio_api", "homeassistant_api"} & set(CONFIG)
    assert f"profile {CONFIG['slug']} " in (FOLDER / "apparmor.txt").read_text()


def test_the_store_of_apps_finds_what_it_shows():
    """Names as the Supervisor knows them; sizes as its documentation asks."""
    repository = yaml.safe_load((FOLDER.parent / "repository.yaml").read_text())
    assert set(repository) == {"name", "maintainer"}
    for name, size in {"icon.png": (128, 128), "logo.png": (250, 100)}.items():
        data = (FOLDER / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == size
    labels = dict(re.findall(r'(io\.hass\.\w+)="([^"]*)"', (FOLDER / "Dockerfile").read_text()))
    assert labels == {
        "io.hass.type": "app",
        "io.hass.name": CONFIG["name"],
        "io.hass.description": CONFIG["description"],
        "io.hass.version": CONFIG["version"],
        "io.hass.arch": "|".join(CONFIG["arch"]),
    }
    assert f"## {CONFIG['version']}\n" in (FOLDER / "CHANGELOG.md").read_text() and (FOLDER / "README.md").exists()
    assert not (FOLDER / "build.yaml").exists()  # the Dockerfile says it all
    for page in FOLDER.parent.rglob("*.md"):
        assert not re.search(r"\badd-?ons?\b(?!` in)", page.read_text()), f"{page.name}: they are apps"


def test_it_starts_with_python_alone():
    """The script imports nothing that is not Python's own."""
    code = f"import sys; sys.argv = ['x']; import runpy; runpy.run_path({str(FOLDER / 'run.py')!r})"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True).returncode == 0
