"""The flags of `veil serve` and `veil release`, in groups, and the settings of the gateway that they make."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from veilstream.apps.cli.common import need, remembered
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.control.mechanism import MeterName
    from veilstream.gateway.broker import BrokerSettings
    from veilstream.gateway.forward import ForwardSettings
    from veilstream.gateway.guard import HttpSettings
    from veilstream.gateway.home import Home
    from veilstream.gateway.nats.worker import NatsSettings
    from veilstream.gateway.outcome import OutFormat
    from veilstream.gateway.owntracks import Seals
    from veilstream.gateway.scheduler import Serving
    from veilstream.gateway.space import Space
    from veilstream.gateway.store import Store
    from veilstream.gateway.tls import Tls
    from veilstream.gateway.topics import Route
    from veilstream.gateway.wire import Opens

MQTT_PORT, MQTT_TLS_PORT, HTTP_PORT, LAST_PORT = 1883, 8883, 8080, 65535


@dataclass(frozen=True)
class Promise:
    PANEL: ClassVar = "Release"
    store: Annotated[Path | None, Option(help="Where releases are remembered (default: POLICY.db).")] = None
    no_store: Annotated[bool, Option("--no-store", help="Remember nothing after this run.")] = False
    ceiling: Annotated[float | None, Option(help="Bits per stream beyond which releases do not look.")] = None
    meter: Annotated[
        str | None,
        Option(
            help="exact (belief), table (faster; window policies), or capacity (worst case, whatever the data is). "
            "[default: exact; capacity after veil start]"
        ),
    ] = None
    max_ahead: Annotated[int | None, Option(help="Steps a reading may lie ahead.")] = None
    force: Annotated[bool, Option("--force", help="Run a model marked study only.")] = False
    idle: Annotated[list[str] | None, Option(metavar="SPACE", help="In the store, not served this time.")] = None

    def space(self, policy: Path, seals: "Seals | None" = None) -> "Space":
        from veilstream.artefact import load
        from veilstream.gateway.space import Space

        try:
            meter: MeterName | None = self.meter  # type: ignore[assignment]  # it is checked
            return Space(load(policy), self.ceiling, meter, self.force, seals)
        except InputError as error:
            raise InputError(str(error) if str(policy) in str(error) else f"{policy}: {error}") from None

    def open_store(self, policy: Path, spaces: "dict[str, Space]", tell: Callable[[str], None]) -> "Store":
        from veilstream.gateway.database import MEMORY
        from veilstream.gateway.store import Store

        if self.no_store and self.store is not None:
            raise InputError("--store and --no-store exclude each other")
        if self.no_store:
            tell("warning: --no-store: a second run draws again, and two draws of one step leak more")
        if str(self.store) == MEMORY:
            raise InputError(f"--store must be a file, found {MEMORY}; --no-store keeps nothing, and says so")
        path = MEMORY if self.no_store else self.store or Path(f"{policy}.db")
        opened = Store(path, {name: s.binding for name, s in spaces.items()}, self.idle or ())
        if opened.changed:
            tell("note: the policy changed since the last run; steps and the meter are kept")
        return opened


@dataclass(frozen=True)
class Extent:
    PANEL: ClassVar = "Release"
    clock: Annotated[bool, Option("--clock", help="One release per step and stream, reading or not.")] = False
    max_streams: Annotated[int, Option(help="Streams that may be opened.")] = 1_000_000
    keep: Annotated[int | None, Option(help="Steps per stream the log keeps (all; NATS: 32).")] = None
    columns: Annotated[
        str | None, Option(help="Which field is what, as in time=ts,value=glucose (default: as fitted, then by name).")
    ] = None

    def name_fields(self, spaces: "Mapping[str, Space]") -> None:
        """Names of the fields of each space's messages."""
        from veilstream.data.columns import parse_columns

        told = parse_columns(self.columns)
        for space in spaces.values():
            try:
                space.columns = told or parse_columns(remembered(space.provenance).get("columns"))
            except InputError:  # a file may say anything
                space.columns = {}

    def serving(self, max_ahead: int | None, opens: "Opens | None" = None) -> "Serving":
        from veilstream.gateway.scheduler import Serving

        return Serving(self.clock, max_ahead, self.max_streams, keep=self.keep, opens=opens)


@dataclass(frozen=True)
class Access:
    PANEL: ClassVar = "MQTT and NATS"
    user: Annotated[str | None, Option(help="User name at the broker.")] = None
    password_file: Annotated[Path | None, Option(help="Its password (or VEIL_MQTT_PASSWORD ...).")] = None
    ca: Annotated[Path | None, Option(help="Certificate authority of the broker.")] = None
    cert: Annotated[Path | None, Option(help="Client certificate.")] = None
    cert_key: Annotated[Path | None, Option(help="Its key.")] = None
    out_format: Annotated[str, Option(help="auto (as the reading), plain or owntracks.")] = "auto"

    @property
    def form(self) -> "OutFormat":
        if self.out_format not in ("auto", "plain", "owntracks"):
            raise InputError(f"unknown output format {self.out_format!r}; known: auto, plain, owntracks")
        return self.out_format  # type: ignore[return-value]

    def encryption(self, always: bool = False) -> "Tls | None":
        from veilstream.gateway.tls import Tls

        if not (always or self.ca or self.cert):
            return None
        return Tls(*(str(f) if f is not None else None for f in (self.ca, self.cert, self.cert_key)))


@dataclass(frozen=True)
class Broker:
    PANEL: ClassVar = "MQTT"
    mqtt: Annotated[str | None, Option(metavar="HOST[:PORT]", help="Broker.")] = None
    source: Annotated[str, Option("--in", help="Topic filter of readings.")] = "in/+"
    target: Annotated[str, Option("--out", help="Topics of releases.")] = "out/+"
    route: Annotated[
        list[str] | None, Option(metavar="'IN OUT POLICY [SPACE]'", help="One more policy, for its own topics.")
    ] = None
    tls: Annotated[bool, Option("--tls", help="Encrypt; port 8883 by default.")] = False
    client_id: Annotated[str | None, Option(help="Session name (default: from the store).")] = None
    status_topic: Annotated[str, Option(help="online / offline, retained; also the last will.")] = "veil/status"
    retain: Annotated[bool, Option("--retain", help="Publish releases retained.")] = False
    republish: Annotated[int, Option(help="Confirmed releases sent again after a break.")] = 1000
    homeassistant: Annotated[bool, Option("--homeassistant", help="Announce every stream to Home Assistant.")] = False
    discovery_prefix: Annotated[str, Option(help="Where it listens for that.")] = "homeassistant"

    def routes(self, policy: Path, form: "OutFormat") -> "list[tuple[Route, Path]]":
        """Routes and their policies. A space has a name of its own, whatever its topics are called; by default that of
        its policy file. The first one has none."""
        from veilstream.gateway.topics import Route

        found = [(Route(self.source, self.target, "", form), policy)]
        for text in self.route or []:
            parts = text.split()
            if len(parts) not in (3, 4):
                raise InputError(f"--route needs 'IN OUT POLICY', or 'IN OUT POLICY SPACE', found {text!r}")
            source, target, file = parts[:3]
            space = parts[3] if len(parts) == 4 else Path(file).stem
            if space in {route.space for route, _ in found} or not space.isprintable():
                raise InputError(
                    f"--route: every space needs a name of its own, add it: '{source} {target} {file} NAME'"
                )
            found.append((Route(source, target, space, form), Path(file)))
        return found

    def home(self, spaces: "dict[str, Space]") -> "Home | None":
        from veilstream.gateway.home import Home

        return Home(spaces, self.status_topic, self.discovery_prefix) if self.homeassistant else None

    def settings(self, address: str, access: Access, store_id: str) -> "BrokerSettings":
        need("mqtt5", "mqtt")
        from veilstream.gateway.broker import BrokerSettings

        if not address.strip():
            raise InputError("--mqtt: give the broker's name, as in localhost or broker:8883")
        tls, password = access.encryption(self.tls), secret("VEIL_MQTT_PASSWORD", access.password_file)
        host, port = host_and_port(address, "localhost", MQTT_PORT if tls is None else MQTT_TLS_PORT)
        name = self.client_id or f"veil-{store_id}"
        return BrokerSettings(host, port, name, access.user, password, tls, self.status_topic)


@dataclass(frozen=True)
class Page:
    PANEL: ClassVar = "HTTP"
    http: Annotated[str | None, Option(metavar="[HOST:]PORT", help="Listen; on loopback by default.")] = None
    token_file: Annotated[Path | None, Option(help="Bearer token (or VEIL_TOKEN).")] = None
    owntracks: Annotated[str | None, Option(metavar="PATH", help="Phones in HTTP mode POST here (/pub).")] = None
    ingress: Annotated[
        str | None, Option(metavar="ADDRESS", help="Home Assistant's proxy: it may look without a token, in a frame.")
    ] = None

    def settings(self) -> "HttpSettings | None":
        if self.http is None:
            if self.owntracks is not None:
                raise InputError("--owntracks needs --http PORT")
            return None
        need("aiohttp", "http")
        from veilstream.gateway.guard import HttpSettings

        address = self.http if ":" in self.http else f":{self.http}"
        host, port = host_and_port(address, "127.0.0.1", HTTP_PORT)
        return HttpSettings(port, host, secret("VEIL_TOKEN", self.token_file), self.owntracks, self.ingress)


@dataclass(frozen=True)
class Onward:
    PANEL: ClassVar = "OwnTracks"
    forward: Annotated[
        str | None, Option(metavar="URL", help="POST every release there (or VEIL_FORWARD), as OwnTracks does.")
    ] = None
    owntracks_key: Annotated[
        Path | None, Option(help="Secrets of encrypted messages, one a line (or VEIL_OWNTRACKS_KEY).")
    ] = None
    owntracks_key_out: Annotated[
        Path | None, Option(help="Encrypt releases under this secret (or VEIL_OWNTRACKS_KEY_OUT).")
    ] = None

    def settings(self, form: "OutFormat") -> "ForwardSettings | None":
        url = self.forward or os.environ.get("VEIL_FORWARD")
        if not url:
            return None
        need("aiohttp", "http")
        from veilstream.gateway.forward import ForwardSettings

        return ForwardSettings(url, form)

    def opens(self) -> "Opens | None":
        secrets = secret("VEIL_OWNTRACKS_KEY", self.owntracks_key)
        if secrets is None:
            return None
        need("nacl", "owntracks")
        from veilstream.gateway.owntracks import opener

        return opener(secrets.splitlines())

    def seals(self) -> "Seals | None":
        out = secret("VEIL_OWNTRACKS_KEY_OUT", self.owntracks_key_out)
        if out is None:
            return None
        if out in (secret("VEIL_OWNTRACKS_KEY", self.owntracks_key) or "").splitlines():
            raise InputError("`owntracks_key_out` must be another secret: who reads releases could read the readings")
        need("nacl", "owntracks")
        from veilstream.gateway.owntracks import sealer

        return sealer(out)


@dataclass(frozen=True)
class Cluster:
    PANEL: ClassVar = "NATS JetStream"
    nats: Annotated[str | None, Option(metavar="URL[,URL]", help="Be a worker; the memory is there too.")] = None
    nats_creds: Annotated[Path | None, Option(help="Credentials file.")] = None
    nats_key: Annotated[
        Path | None, Option(help="Key that seals the memory, the same for all workers (default: POLICY.key).")
    ] = None
    prefix: Annotated[str, Option(help="Of subjects, streams and bucket.")] = "veil"
    space: Annotated[list[str] | None, Option(metavar="NAME=POLICY", help="One more policy, on its own subjects.")] = (
        None
    )
    partitions: Annotated[int | None, Option(help="Most workers that share the work (16).")] = None
    replicas: Annotated[int | None, Option(help="Nodes that hold everything (3; 1 without a cluster).")] = None
    rebind: Annotated[bool, Option("--rebind", help="The memory belongs to this policy from now on.")] = False

    def policies(self, policy: Path) -> dict[str, Path]:
        """The file of each space."""
        from veilstream.gateway.nats.names import DEFAULT_SPACE

        found = {DEFAULT_SPACE: policy}
        for text in self.space or []:
            name, _, file = text.partition("=")
            if not (name and file and name.isprintable()) or name in found:
                raise InputError(f"--space takes NAME=POLICY, every name once, found {text!r}")
            found[name] = Path(file)
        return found

    def settings(self, urls: str, access: Access, policy: Path) -> "NatsSettings":
        from veilstream.gateway.nats.client import LinkSettings
        from veilstream.gateway.nats.names import Names
        from veilstream.gateway.nats.worker import NatsSettings

        if self.nats_creds is not None:
            need("nkeys", "nats")
        creds = None if self.nats_creds is None else str(self.nats_creds)
        password = secret("VEIL_NATS_PASSWORD", access.password_file)
        where = tuple(part.strip() for part in urls.split(",") if part.strip())
        link = LinkSettings(where, creds, access.user, password, access.encryption())
        key, names = str(self.nats_key or f"{policy}.key"), Names(self.prefix)
        return NatsSettings(key, link, names, self.partitions, self.replicas, self.rebind, access.form)


def host_and_port(text: str, host: str, port: int) -> tuple[str, int]:
    """HOST, HOST:PORT or [IPV6]:PORT."""
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, _port(rest.removeprefix(":")) if rest else port
    name, colon, rest = text.rpartition(":")
    return (name or host, _port(rest)) if colon else (text or host, port)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise InputError(f"a port must be a number up to {LAST_PORT}, found {text!r}")
    return int(text)


def secret(variable: str, file: Path | None) -> str | None:
    """From a file, or from the environment."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        with file.open("rb") as source:
            if os.fstat(source.fileno()).st_mode & 0o077:
                raise InputError(f"the secret in {file} is open to other users; run: chmod 600 {file}")
            return source.read().decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the secret in {file}") from None
