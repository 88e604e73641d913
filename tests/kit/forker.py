"""Starts gateways quickly: imports everything once, then forks one for each line on stdin and prints its pid.

    forker.py POLICY STORE mqtt PORT | http PORT | pipe INPUT       a line on stdin: where a pipe writes,
                                                                    or where mqtt forwards to

Each child is a process of its own that runs what `veil serve` or `veil release` runs; the test kills it with SIGKILL.
"""

import os
import sys
from pathlib import Path

from veilstream.artefact import load
from veilstream.gateway import pipe, service
from veilstream.gateway.audience import AudienceSpec, with_audiences
from veilstream.gateway.broker import BrokerSettings
from veilstream.gateway.core import Core
from veilstream.gateway.forward import Forwarder, ForwardSettings
from veilstream.gateway.guard import HttpSettings
from veilstream.gateway.http import HttpGateway
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.topics import Route

OWNER, THEIRS = "o" * 20, "p" * 20  # tokens, where there is an audience


def child(policy: str, store: str, transport: str, where: str, word: str) -> None:
    service.configure()
    public = Path(policy).with_name("public.veil")  # an audience, where there is one
    asked = [AudienceSpec("public", str(public))] if public.exists() else []
    spaces = with_audiences({"": Space(load(policy))}, asked)
    opened = Store(store, {name: space.binding for name, space in spaces.items()})
    core = Core(spaces, opened)
    if transport == "mqtt":
        settings = BrokerSettings("127.0.0.1", int(where), f"veil-{opened.id}", republish=200)
        behind = [Route("in/+", "public/+", "public")] if asked else []
        gateway = MqttGateway(core, [Route("in/+", "out/+")], settings, audiences=behind)
        parts = {"mqtt": gateway.run}
        if word:
            core.outlets.append(onwards := Forwarder(core, ForwardSettings(word)))
            parts["forward"] = onwards.run
        service.run(parts, core.stats)
    elif transport == "http":
        tokens = {"token": OWNER, "audiences": {"public": THEIRS}} if asked else {}
        service.run({"http": HttpGateway(core, HttpSettings(int(where), **tokens)).run}, core.stats)
    else:
        with open(where, "rb") as source, open(word, "wb") as target:
            pipe.run(core, source, target, "jsonl", audience="public" if asked else "")
    core.close()


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(*sys.argv[1:], line.strip())
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)  # the test ends it


if __name__ == "__main__":
    main()
