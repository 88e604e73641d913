"""Starts gateways quickly: imports everything once, then forks one for each line on stdin and prints its pid.

Each child is a process of its own that runs what `veil serve` runs; the test kills it with SIGKILL.
"""

import os
import sys

from veilstream.artefact import load
from veilstream.gateway import logs, service
from veilstream.gateway.broker import BrokerSettings
from veilstream.gateway.core import Core
from veilstream.gateway.forward import Forwarder, ForwardSettings
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.topics import Route


def child(policy: str, store: str, port: int, url: str | None) -> None:
    logs.configure()
    space = Space(load(policy))
    opened = Store(store, {"": space.binding})
    core = Core({"": space}, opened)
    settings = BrokerSettings("127.0.0.1", port, f"veil-{opened.id}")
    gateway = MqttGateway(core, [Route("in/+", "out/+")], settings, republish=200)
    parts = {"mqtt": gateway.run}
    if url is not None:
        core.outlets.append(onwards := Forwarder(core, ForwardSettings(url)))
        parts["forward"] = onwards.run
    service.run(parts, core.stats)
    core.close()


def main() -> None:
    policy, store, port, url = sys.argv[1], sys.argv[2], int(sys.argv[3]), (*sys.argv[4:], None)[0]
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(policy, store, port, url)
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)  # the test ends it


main()
