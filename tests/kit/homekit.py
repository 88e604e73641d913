"""A real Home Assistant, where VEIL_TEST_HOME names a virtual environment that has one (see home_server.py)."""

import json
import os
import subprocess
import threading
from pathlib import Path

from patience import wait_until

HOOK, SECRET = "veilhook", "correct horse"  # as home_server.py has them
START_S = 120


def home_command() -> str | None:
    python = Path(os.environ.get("VEIL_TEST_HOME") or "/nowhere") / "bin" / "python"
    return str(python) if python.exists() else None


class HomeAssistant:
    """Started, ended and started again by its owner; `states` is what its entities say."""

    def __init__(self, folder: Path, http_port: int, mqtt_port: int, owntracks: str) -> None:
        self.folder, self.log = folder, folder / "home.log"
        self.command = [Path(__file__).with_name("home_server.py"), folder / "config", http_port, mqtt_port, owntracks]
        self.hook = f"http://127.0.0.1:{http_port}/api/webhook/{HOOK}"
        self.start()

    def start(self) -> None:
        self.said: list[dict] = []
        with self.log.open("ab") as log:
            command = [home_command(), *map(str, self.command)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()
        wait_until(lambda: any(s["what"] == "ready" for s in self.said), START_S, "the start of Home Assistant")
        assert all(s["ok"] for s in self.said if s["what"] == "part"), self.said

    def _listen(self, out) -> None:
        for line in out:
            self.said.append(json.loads(line))

    @property
    def states(self) -> dict[str, dict]:
        return {s["entity"]: s for s in list(self.said) if s["what"] == "state"}

    def place(self, entity: str) -> list[float] | None:
        """Where it says somebody is."""
        known = self.states.get(entity, {}).get("attributes", {})
        return [known[k] for k in ("latitude", "longitude", "gps_accuracy")] if "latitude" in known else None

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
