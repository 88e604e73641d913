"""`veil serve`: the gateway."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.common import need
from veilstream.apps.cli.release import open_space, open_store
from veilstream.apps.cli.serve_nats import exclude, serve_nats, spaces_of
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.broker import BrokerSettings
    from veilstream.gateway.http import HttpSettings
    from veilstream.gateway.space import Space
    from veilstream.gateway.topics import Route

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
BROKER, PAGE, CLUSTER, PROMISE = "MQTT", "HTTP", "NATS JetStream", "Release"


def serve(
    policy: Annotated[Path, typer.Argument(help="The policy file (.veil).")],
    mqtt: Annotated[str | None, typer.Option(metavar="HOST[:PORT]", help="Broker.", rich_help_panel=BROKER)] = None,
    source: Annotated[str, typer.Option("--in", help="Topic filter of readings.", rich_help_panel=BROKER)] = "in/+",
    target: Annotated[str, typer.Option("--out", help="Topics of releases.", rich_help_panel=BROKER)] = "out/+",
    route: Annotated[
        list[str] | None,
        typer.Option(metavar="'IN OUT POLICY'", help="One more policy, for its own topics.", rich_help_panel=BROKER),
    ] = None,
    user: Annotated[str | None, typer.Option(help="User name at the broker.", rich_help_panel=BROKER)] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="Its password (or VEIL_MQTT_PASSWORD).", rich_help_panel=BROKER)
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt; port 8883 by default.", rich_help_panel=BROKER)] = False,
    ca: Annotated[
        Path | None, typer.Option(help="Certificate authority of the broker.", rich_help_panel=BROKER)
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="Client certificate.", rich_help_panel=BROKER)] = None,
    cert_key: Annotated[Path | None, typer.Option(help="Its key.", rich_help_panel=BROKER)] = None,
    client_id: Annotated[
        str | None, typer.Option(help="Session name (default: from the store).", rich_help_panel=BROKER)
    ] = None,
    status_topic: Annotated[
        str, typer.Option(help="online / offline, retained; also the last will.", rich_help_panel=BROKER)
    ] = "veil/status",
    out_format: Annotated[
        str, typer.Option(help="auto (as the reading), plain or owntracks.", rich_help_panel=BROKER)
    ] = "auto",
    retain: Annotated[
        bool, typer.Option("--retain", help="Publish releases retained.", rich_help_panel=BROKER)
    ] = False,
    republish: Annotated[
        int, typer.Option(help="Confirmed releases sent again after a break.", rich_help_panel=BROKER)
    ] = 1000,
    http: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Listen; loopback unless told.", rich_help_panel=PAGE)
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="Bearer token (or VEIL_TOKEN).", rich_help_panel=PAGE)] = None,
    nats: Annotated[
        str | None,
        typer.Option(metavar="URL[,URL]", help="Be a worker; the memory is there too.", rich_help_panel=CLUSTER),
    ] = None,
    nats_creds: Annotated[Path | None, typer.Option(help="Credentials file.", rich_help_panel=CLUSTER)] = None,
    prefix: Annotated[str, typer.Option(help="Of subjects, streams and bucket.", rich_help_panel=CLUSTER)] = "veil",
    space: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=POLICY", help="One more policy, on its own subjects.", rich_help_panel=CLUSTER),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Most workers that share the work (16).", rich_help_panel=CLUSTER)
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(help="Nodes that hold everything (3; 1 without a cluster).", rich_help_panel=CLUSTER)
    ] = None,
    rebind: Annotated[
        bool, typer.Option("--rebind", help="The memory belongs to this policy from now on.", rich_help_panel=CLUSTER)
    ] = False,
    store: Annotated[
        Path | None, typer.Option(help="Where releases are remembered (default: POLICY.db).", rich_help_panel=PROMISE)
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Remember nothing after this run.", rich_help_panel=PROMISE)
    ] = False,
    ceiling: Annotated[
        float | None, typer.Option(help="Bits per stream beyond which releases do not look.", rich_help_panel=PROMISE)
    ] = None,
    meter: Annotated[
        str, typer.Option(help="exact (belief), or table (faster; window policies).", rich_help_panel=PROMISE)
    ] = "exact",
    clock: Annotated[
        bool, typer.Option("--clock", help="One release per step and stream, reading or not.", rich_help_panel=PROMISE)
    ] = False,
    max_ahead: Annotated[
        int | None, typer.Option(help="Steps a reading may lie ahead.", rich_help_panel=PROMISE)
    ] = None,
    max_streams: Annotated[int, typer.Option(help="Streams that may be opened.", rich_help_panel=PROMISE)] = 1_000_000,
    keep: Annotated[
        int | None, typer.Option(help="Steps per stream the log keeps (all; NATS: 32).", rich_help_panel=PROMISE)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run a model marked study only.", rich_help_panel=PROMISE)
    ] = False,
    json_out: Annotated[
        bool, typer.Option("--json", help="Logs are JSON lines on stderr already; kept for uniformity.")
    ] = False,
) -> None:
    """Run the gateway: only releases get out. MQTT, HTTP with a status page, or both; or a worker on NATS."""
    from veilstream.gateway import logs, service
    from veilstream.gateway.core import Core

    if nats is not None:
        exclude({"--mqtt": mqtt, "--http": http, "--store": store, "--no-store": no_store})
        serve_nats(
            spaces_of(policy, space or [], ceiling, meter, force),
            nats,
            nats_creds,
            user,
            _secret("VEIL_NATS_PASSWORD", password_file),
            (ca, cert, cert_key),
            prefix,
            out_format,
            partitions=partitions,
            replicas=replicas,
            rebind=rebind,
            keep=keep,
            max_ahead=max_ahead,
            clock=clock,
            max_streams=max_streams,
        )
        return
    if mqtt is None and http is None:
        raise InputError("nothing to serve: give --mqtt HOST, --http PORT, both, or --nats URL")
    if clock and mqtt is None:
        raise InputError("--clock publishes to a broker: give --mqtt HOST as well, or --nats URL")
    if route and mqtt is None:
        raise InputError("--route needs --mqtt HOST")
    logs.configure()
    spaces, routes = _spaces(policy, source, target, route or [], out_format, ceiling, meter, force)
    http_settings = _http(http, token_file) if http is not None else None
    opened = open_store(policy, store, no_store, spaces, logging.getLogger("veilstream.gateway.store").warning)
    core = Core(spaces, opened, max_ahead=max_ahead, clock=clock, max_streams=max_streams, keep=keep)
    parts: dict[str, service.Run] = {}
    if mqtt is not None:
        need("paho.mqtt.client", "mqtt")
        from veilstream.gateway.mqtt import MqttGateway

        password = _secret("VEIL_MQTT_PASSWORD", password_file)
        broker = _broker(mqtt, client_id or f"veil-{opened.id}", user, password, tls, ca, cert, cert_key, status_topic)
        gateway = MqttGateway(core, routes, broker, republish=republish, retain=retain)
        parts["mqtt"] = gateway.run
        if clock:
            parts |= {
                f"clock {name}".strip(): service.Clock(core, name, gateway.compose_tick, gateway.wake).run
                for name in spaces
            }
    if http_settings is not None:
        from veilstream.gateway.http import HttpGateway

        parts["http"] = HttpGateway(core, http_settings).run
    service.run(core, parts)


def _spaces(
    policy: Path, source: str, target: str, more: list[str], form: str, ceiling: float | None, meter: str, force: bool
) -> "tuple[dict[str, Space], list[Route]]":
    """The default policy and one for each --route; a space is named after the topics it serves."""
    from veilstream.gateway.topics import Route

    if form not in ("auto", "plain", "owntracks"):
        raise InputError(f"unknown output format {form!r}; known: auto, plain, owntracks")
    spaces = {"": open_space(policy, ceiling, meter, force)}
    routes = [Route(source, target, "", form)]  # type: ignore[arg-type]
    for text in more:
        parts = text.split()
        if len(parts) != 3:
            raise InputError(f"--route needs 'IN OUT POLICY', found {text!r}")
        spaces[parts[0]] = open_space(Path(parts[2]), ceiling, meter, force)
        routes.append(Route(parts[0], parts[1], parts[0], form))  # type: ignore[arg-type]
    return spaces, routes


def _broker(
    address: str,
    client_id: str,
    user: str | None,
    password: str | None,
    tls: bool,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    status_topic: str,
) -> "BrokerSettings":
    from veilstream.gateway.broker import BrokerSettings

    tls = tls or ca is not None or cert is not None
    host, port = _address(address, "localhost", 8883 if tls else 1883)
    ca_file, cert_file, key_file = (str(f) if f is not None else None for f in (ca, cert, key))
    settings = BrokerSettings(host, port, client_id, user, password, tls, ca_file, cert_file, key_file, status_topic)
    if tls:
        settings.tls_context()  # files that cannot be read are found now, not at the first connection
    return settings


def _http(address: str, token_file: Path | None) -> "HttpSettings":
    need("aiohttp", "http")
    from veilstream.gateway.http import HttpSettings

    host, port = _address(address if ":" in address else f":{address}", "127.0.0.1", 8080)
    return HttpSettings(port, host, _secret("VEIL_TOKEN", token_file))


def _address(text: str, host: str, port: int) -> tuple[str, int]:
    """HOST, HOST:PORT or [IPV6]:PORT."""
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, _port(rest.removeprefix(":")) if rest else port
    name, colon, rest = text.rpartition(":")
    return (name or host, _port(rest)) if colon else (text or host, port)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise InputError(f"a port must be a number up to 65535, found {text!r}")
    return int(text)


def _secret(variable: str, file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(variable) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the secret in {file}") from None
