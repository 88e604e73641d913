"""`veil serve`: the gateway."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.common import grouped, need
from veilstream.apps.cli.gateway_flags import Access, Broker, Cluster, Extent, Page, Promise
from veilstream.errors import InputError

EXAMPLES = """
Examples:

  veil serve policy.veil --http 8080

  veil serve policy.veil --mqtt localhost --http 8080 --store veil.db --ceiling 50

  veil serve policy.veil --mqtt broker:8883 --tls --user gate --in 'owntracks/+/+' --out 'shared/+/+'

  veil serve policy.veil --mqtt localhost --clock --route 'meters/+ shared/meters/+ meter.veil'

  veil serve policy.veil --nats nats://n1:4222,nats://n2:4222    (as many of these workers as wanted)

Secrets come from the environment or a file: VEIL_TOKEN or --token-file, VEIL_MQTT_PASSWORD or VEIL_NATS_PASSWORD or
--password-file.
"""


@grouped
def serve(
    policy: Annotated[Path, typer.Argument(help="The policy file (.veil).")],
    broker: Broker,
    page: Page,
    cluster: Cluster,
    access: Access,
    promise: Promise,
    extent: Extent,
    json_out: Annotated[
        bool, typer.Option("--json", help="Logs are JSON lines on stderr already; kept for uniformity.")
    ] = False,
) -> None:
    """Run the gateway: only releases get out. MQTT, HTTP with a status page, or both; or a worker on NATS."""
    if cluster.nats is not None:
        others = {"--mqtt": broker.mqtt, "--http": page.http, "--store": promise.store, "--no-store": promise.no_store}
        given = [name for name, value in others.items() if value]
        if given:
            raise InputError(f"{given[0]} does not go with --nats, whose workers keep their memory in the cluster")
        _work(policy, cluster.nats, cluster, access, promise, extent)
        return
    if broker.mqtt is None and page.http is None:
        raise InputError("nothing to serve: give --mqtt HOST, --http PORT, both, or --nats URL")
    if extent.clock and broker.mqtt is None:
        raise InputError("--clock publishes to a broker: give --mqtt HOST as well, or --nats URL")
    if broker.route and broker.mqtt is None:
        raise InputError("--route needs --mqtt HOST")
    _serve(policy, broker, page, access, promise, extent)


def _serve(policy: Path, broker: Broker, page: Page, access: Access, promise: Promise, extent: Extent) -> None:
    """MQTT, HTTP or both over one core."""
    from veilstream.gateway import logs, service
    from veilstream.gateway.core import Core

    logs.configure()
    routes = broker.routes(policy, access.form)
    spaces = {route.space: promise.space(file) for route, file in routes}
    extent.name_fields(spaces)
    http = page.settings()
    store = promise.open_store(policy, spaces, logging.getLogger("veilstream.gateway.store").warning)
    with closing(Core(spaces, store, extent.serving(promise.max_ahead))) as core:
        parts: dict[str, service.Run] = {}
        if broker.mqtt is not None:
            need("paho.mqtt.client", "mqtt")
            from veilstream.gateway.mqtt import MqttGateway

            to = broker.settings(broker.mqtt, access, store.id)
            gateway = MqttGateway(core, [r for r, _ in routes], to, republish=broker.republish, retain=broker.retain)
            parts["mqtt"] = gateway.run
            for name in spaces if extent.clock else ():
                parts[f"clock {name}".strip()] = service.Clock(core, name, gateway.composer(name), gateway.wake).run
        if http is not None:
            from veilstream.gateway.http import HttpGateway

            parts["http"] = HttpGateway(core, http, [r for r, _ in routes] if broker.mqtt is not None else ()).run
        service.run(parts, core.stats)


def _work(policy: Path, urls: str, cluster: Cluster, access: Access, promise: Promise, extent: Extent) -> None:
    """One worker on JetStream."""
    need("nats", "nats")
    from veilstream.gateway import logs, service
    from veilstream.gateway.nats.worker import NatsGateway

    spaces = {name: promise.space(file) for name, file in cluster.policies(policy).items()}
    extent.name_fields(spaces)
    settings = cluster.settings(urls, access, policy)
    logs.configure()
    gateway = NatsGateway(spaces, settings, extent.serving(promise.max_ahead))
    gateway.probe()
    service.run({"nats": gateway.run}, gateway.stats)
