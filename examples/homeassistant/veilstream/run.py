"""The app's start: its options and Home Assistant's broker as a command line of `veil serve`."""

import json
import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

PROXY, PORT = "172.30.32.2", 8099
SECRETS = {"token": "VEIL_TOKEN", "owntracks_key": "VEIL_OWNTRACKS_KEY", "forward": "VEIL_FORWARD"}


def command(options: Mapping[str, Any], broker: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Arguments, and what only the environment may hold."""
    out = ["veil", "serve", f"/config/{options['policy']}", "--store", "/data/veil.db", "--homeassistant"]
    user = f"{quote(broker['username'], safe='')}@" if broker.get("username") else ""
    out += ["--mqtt", f"mqtt{'s' if broker.get('ssl') else ''}://{user}{broker['host']}:{broker['port']}"]
    out += ["--in", options["topics_in"], "--out", options["topics_out"]]
    out += ["--http", f"0.0.0.0:{PORT}", "--option", f"ingress={PROXY}"]
    out += ["--clock"] if options.get("clock") else []
    out += ["--ceiling", str(options["ceiling"])] if options.get("ceiling") is not None else []
    out += ["--owntracks", "/pub"] if options.get("token") else []
    secrets = {variable: str(options[name]) for name, variable in SECRETS.items() if options.get(name)}
    return out, {**secrets, **({"VEIL_MQTT_PASSWORD": broker["password"]} if broker.get("password") else {})}


def broker_of_home() -> dict[str, Any]:
    """Asked from the Supervisor, which knows it by `services: mqtt:need`."""
    bearer = {"Authorization": f"Bearer {os.environ['SUPERVISOR_TOKEN']}"}
    with urllib.request.urlopen(urllib.request.Request("http://supervisor/services/mqtt", headers=bearer)) as answer:
        found: dict[str, Any] = json.load(answer)["data"]
    return found


if __name__ == "__main__":
    arguments, secrets = command(json.loads(Path("/data/options.json").read_text()), broker_of_home())
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SUPERVISOR_", "HASSIO_"))}
    sys.stdout.flush()
    os.execvpe(arguments[0], arguments, {**kept, **secrets})
