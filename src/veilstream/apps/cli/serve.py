"""`veil serve`: the gateway."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.common import grouped, need
from veilstream.apps.cli.config import with_config
from veilstream.apps.cli.gateway_flags import Access, Broker, Cluster, Extent, Onward, Page, Promise
from veilstream.errors import InputError

EXAMPLES = """
Examples:

  veil serve policy.veil --http 8080

  veil serve policy.veil --mqtt localhost --http 8080 --store veil.db --ceiling 50

  veil serve policy.veil --mqtt broker:8883 --tls --user gate --in 'owntracks/+/+' --out 'shared/+/+'

  veil serve policy.veil --http 0.0.0.0:8080 --owntracks /pub --forward http://recorder:8083/pub

  veil serve policy.veil --mqtt localhost --clock --route 'meters/+ shared/meters/+ meter.veil'

  veil serve policy.veil --mqtt localhost --in 'owntracks/+/+' --out 'shared/+/+' --homeassistant

  veil serve policy.veil --nats nats://n1:4222,nats://n2:4222    (as many of these workers as wanted)

  veil serve --config veil.toml                   every flag as a key; --show-config prints what holds

  VEIL_SERVE_CEILING=50 veil serve --config veil.toml --http 8081       the environment, then the command line, win

Secrets come from the environment or a file: VEIL_TOKEN or --token-file, VEIL_MQTT_PASSWORD or VEIL_NATS_PASSWORD or
--password-file, VEIL_OWNTRACKS_KEY or --owntracks-key (and _OUT, -out); a URL that holds one from VEIL_FORWARD.
"""


@grouped
def serve(
    policy: Annotated[Path | None, typer.Argument(help="The policy file (.veil).")] = None,
    *,
    config: Annotated[
        Path | None,
        typer.Option(metavar="veil.toml", help="Take flags from this file (or VEIL_SERVE_CONFIG); default: none."),
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print the flags that hold, as such a file, and stop.")
    ] = False,
    broker: Broker,
    page: Page,
    onward: Onward,
    cluster: Cluster,
    access: Access,
    promise: Promise,
    extent: Extent,
    json_out: Annotated[
        bool, typer.Option("--json", help="--show-config as JSON; logs are JSON lines on stderr already.")
    ] = False,
) -> None:
    """Run the gateway: only releases get out. MQTT, HTTP with a status page, or both; or a worker on NATS."""
    if policy is None:
        raise InputError("which policy? give its file: veil serve policy.veil, or policy = ... in --config veil.toml")
    if cluster.nats is not None:
        others = {"--mqtt": broker.mqtt, "--http": page.http, "--store": promise.store, "--no-store": promise.no_store}
        others |= {"--forward": onward.forward}
        given = [name for name, value in others.items() if value]
        if given:
            raise InputError(f"{given[0]} does not go with --nats, whose workers keep their memory in the cluster")
        _work(policy, cluster.nats, cluster, access, promise, extent, onward)
        return
    if broker.mqtt is None and page.http is None:
        raise InputError("nothing to serve: give --mqtt HOST, --http PORT, both, or --nats URL")
    if extent.clock and broker.mqtt is None and onward.settings(access.form) is None:
        raise InputError("--clock publishes to a broker: give --mqtt HOST as well, or --nats URL, or --forward URL")
    if broker.mqtt is None and (broker.route or broker.homeassistant):
        raise InputError(f"{'--route' if broker.route else '--homeassistant'} needs --mqtt HOST")
    _serve(policy, broker, page, access, promise, extent, onward)


Command = with_config(serve, "VEIL_SERVE_")


def _serve(
    policy: Path, broker: Broker, page: Page, access: Access, promise: Promise, extent: Extent, onward: Onward
) -> None:
    """MQTT, HTTP or both over one core."""
    from veilstream.gateway import logs, service
    from veilstream.gateway.core import Core

    logs.configure()
    routes = broker.routes(policy, access.form)
    serving, seals = extent.serving(promise.max_ahead, onward.opens()), onward.seals()
    spaces = {route.space: promise.space(file, seals) for route, file in routes}
    extent.name_fields(spaces)
    http, forward = page.settings(), onward.settings(access.form)
    store = promise.open_store(policy, spaces, logging.getLogger("veilstream.gateway.store").warning)
    with closing(Core(spaces, store, serving)) as core:
        parts: dict[str, service.Run] = {}
        clocks = {name: service.Clock(core, name) for name in spaces if serving.clock}
        if broker.mqtt is not None:
            from veilstream.gateway.mqtt import MqttGateway

            to = broker.settings(broker.mqtt, access, store.id)
            shown, again, home = [r for r, _ in routes], broker.republish, broker.home(spaces)
            gateway = MqttGateway(core, shown, to, republish=again, retain=broker.retain, home=home)
            parts["mqtt"] = gateway.run
            for name in clocks:
                clocks[name] = service.Clock(core, name, gateway.composer(name), gateway.wake)
        if http is not None:
            from veilstream.gateway.http import HttpGateway

            parts["http"] = HttpGateway(core, http, [r for r, _ in routes] if broker.mqtt is not None else ()).run
        if forward is not None:
            from veilstream.gateway.forward import Forwarder

            onwards = Forwarder(core, forward)
            core.outlets.append(onwards)
            parts["forward"] = onwards.run
        parts |= {f"clock {name}".strip(): clock.run for name, clock in clocks.items()}
        service.run(parts, core.stats)


def _work(
    policy: Path, urls: str, cluster: Cluster, access: Access, promise: Promise, extent: Extent, onward: Onward
) -> None:
    """One worker on JetStream."""
    need("nats", "nats")
    from veilstream.gateway import logs, service
    from veilstream.gateway.nats.worker import NatsGateway

    serving, seals = extent.serving(promise.max_ahead, onward.opens()), onward.seals()
    spaces = {name: promise.space(file, seals) for name, file in cluster.policies(policy).items()}
    extent.name_fields(spaces)
    settings = cluster.settings(urls, access, policy)
    logs.configure()
    gateway = NatsGateway(spaces, settings, serving)
    gateway.probe()
    service.run({"nats": gateway.run}, gateway.stats)
