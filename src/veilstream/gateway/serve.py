"""A gateway from its spec: the transports that are asked for over one core, or a worker on NATS."""

import logging
from contextlib import closing

from veilstream.gateway import logs, service
from veilstream.gateway.core import Core
from veilstream.gateway.spec import ServeSpec


def serve(spec: ServeSpec) -> None:
    """Until a signal."""
    logs.configure()
    (_work if spec.nats is not None else _serve)(spec)


def _serve(spec: ServeSpec) -> None:
    """MQTT, HTTP or both."""
    assert spec.policy is not None
    routes = spec.routes()
    serving, spaces = spec.serving(), spec.spaces({route.space: file for route, file in routes})
    http, forward, topics = spec.listener(), spec.receiver(), [route for route, _ in routes]
    store = spec.open_store(spec.policy, spaces, logging.getLogger("veilstream.gateway.store").warning)
    with closing(Core(spaces, store, serving)) as core:
        parts: dict[str, service.Run] = {}
        clocks = {name: service.Clock(core, name) for name in spaces if spec.clock}
        if spec.mqtt is not None:
            from veilstream.gateway.home import Home
            from veilstream.gateway.mqtt import MqttGateway

            to, home = spec.broker(store.id), None
            if spec.homeassistant:
                home = Home(spaces, spec.status_topic, spec.discovery_prefix)
            gateway = MqttGateway(core, topics, to, republish=spec.republish, retain=spec.retain, home=home)
            parts["mqtt"] = gateway.run
            for name in clocks:
                clocks[name] = service.Clock(core, name, gateway.composer(name), gateway.wake)
        if http is not None:
            from veilstream.gateway.http import HttpGateway

            parts["http"] = HttpGateway(core, http, topics if spec.mqtt is not None else ()).run
        if forward is not None:
            from veilstream.gateway.forward import Forwarder

            onwards = Forwarder(core, forward)
            core.outlets.append(onwards)
            parts["forward"] = onwards.run
        parts |= {f"clock {name}".strip(): clock.run for name, clock in clocks.items()}
        service.run(parts, core.stats)


def _work(spec: ServeSpec) -> None:
    """One worker on JetStream."""
    from veilstream.gateway.nats.worker import NatsGateway

    assert spec.policy is not None
    serving, spaces = spec.serving(), spec.spaces(spec.policies(spec.policy))
    shape = {"partitions": spec.partitions, "replicas": spec.replicas, "rebind": spec.rebind, "form": spec.out_format}
    gateway = NatsGateway(spaces, spec.worker(spec.policy, **shape), serving)
    gateway.probe()
    service.run({"nats": gateway.run}, gateway.stats)
