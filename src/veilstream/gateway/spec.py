"""ServeSpec: every choice of a gateway, said once. Command line, veil.toml, environment and docs are made from it.

A field carries its help, its group, its flag where that has another name, and what its value is called in the help.
Places are URLs (mqtts://user@host:8883, nats://user@n1:4222). No field holds a secret: passwords, tokens and keys are
in files of mode 0600 or in the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.audience import AudienceSpec
    from veilstream.gateway.broker import BrokerSettings
    from veilstream.gateway.forward import ForwardSettings
    from veilstream.gateway.guard import HttpSettings
    from veilstream.gateway.nats.layout import NatsSettings
    from veilstream.gateway.owntracks import Seals
    from veilstream.gateway.scheduler import Serving
    from veilstream.gateway.space import Space
    from veilstream.gateway.store import Store
    from veilstream.gateway.tls import Tls
    from veilstream.gateway.topics import Route
    from veilstream.gateway.wire import Opens

RELEASE, MQTT, HTTP, OWNTRACKS, NATS, SECURITY = "Release", "MQTT", "HTTP", "OwnTracks", "NATS JetStream", "Connections"
PORTS = {"mqtt": 1883, "mqtts": 8883, "http": 8080}
File = str | os.PathLike[str]


def _option(default: Any, help: str, group: str, flag: str | None = None, metavar: str | None = None) -> Any:
    """flag: where it is not the name of the field; metavar: what its value is called."""
    return field(default=default, metadata={"help": help, "group": group, "flag": flag, "metavar": metavar})


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """What a release rests on, also without a gateway: the store, the meter and its ceiling."""

    store: File | None = _option(None, "Where releases are remembered (default: POLICY.db).", RELEASE)  # noqa: RUF009
    no_store: bool = _option(False, "Remember nothing after this run.", RELEASE)
    ceiling: float | None = _option(None, "Bits per stream beyond which releases do not look.", RELEASE)
    meter: Literal["exact", "capacity"] | None = _option(
        None,
        "exact (belief), or capacity (worst case, whatever the data is). [default: exact]",
        RELEASE,
    )
    max_ahead: int | None = _option(None, "Steps a reading may lie ahead.", RELEASE)
    force: bool = _option(False, "Run a model marked study only.", RELEASE)
    idle: Sequence[str] = _option((), "In the store, not served this time.", RELEASE, metavar="SPACE")
    audience: Sequence[str] = _option(
        (),
        "One more audience, whose releases are drawn from the finer ones (veil solve --behind). Keys: name, out, "
        "ceiling, token-file, delay.",
        RELEASE,
        metavar="'POLICY [KEY=VALUE ...]'",
    )

    def space_of(self, policy: File, columns: str | None = None, seals: Seals | None = None) -> Space:
        """columns: names of the fields of its messages (default: as the policy's data was fitted)."""
        from veilstream.artefact import load
        from veilstream.data.columns import parse_columns
        from veilstream.data.spec import remembered
        from veilstream.gateway.space import Space

        try:
            space = Space(load(policy), self.ceiling, self.meter, self.force, seals)
        except InputError as error:
            raise InputError(str(error) if str(policy) in str(error) else f"{policy}: {error}") from None
        space.columns = parse_columns(columns)
        if not space.columns:
            try:
                space.columns = parse_columns(remembered(space.provenance).get("columns"))
            except InputError:  # a file may say anything
                space.columns = {}
        return space

    @cached_property
    def audiences(self) -> list[AudienceSpec]:
        from veilstream.gateway.audience import AudienceSpec

        return [AudienceSpec.read(text) for text in self.audience]

    def with_audiences(self, spaces: Mapping[str, Space], seals: Seals | None = None) -> dict[str, Space]:
        from veilstream.gateway.audience import with_audiences

        return with_audiences(spaces, self.audiences, self.force, seals)

    def open_store(self, policy: File, spaces: Mapping[str, Space], say: Callable[[str], None]) -> Store:
        from veilstream.gateway.database import MEMORY
        from veilstream.gateway.store import Store

        if self.no_store and self.store is not None:
            raise InputError("`store` and `no_store` exclude each other")
        if self.no_store:
            say("warning: `no_store`: a second run draws again, and two draws of one step leak more")
        if str(self.store) == MEMORY:
            raise InputError(f"`store` must be a file, found {MEMORY}; `no_store` keeps nothing, and says so")
        path = MEMORY if self.no_store else self.store or Path(f"{os.fspath(policy)}.db")
        opened = Store(path, {name: s.binding for name, s in spaces.items()}, self.idle)
        if opened.changed:
            say("note: the policy changed since the last run; steps and the meter are kept")
        return opened


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Where the workers of a gateway on NATS meet: `veil serve`, `veil status` and `veil forget` alike."""

    nats: str | None = _option(
        None, "Be a worker; the memory is there too. A user goes into the URL.", NATS, metavar="URL[,URL]"
    )
    nats_creds: File | None = _option(None, "Credentials file.", NATS)  # noqa: RUF009
    nats_key: File | None = _option(  # noqa: RUF009
        None, "Key that seals the memory, the same for all workers (default: POLICY.key).", NATS
    )
    prefix: str = _option("veil", "Of subjects, streams and bucket.", NATS)
    space: Sequence[str] = _option((), "One more policy, on its own subjects.", NATS, metavar="NAME=POLICY")
    password_file: File | None = _option(  # noqa: RUF009
        None, "Password of the URL's user (or VEIL_MQTT_PASSWORD, VEIL_NATS_PASSWORD).", SECURITY
    )
    ca: File | None = _option(None, "Certificate authority of the broker or cluster.", SECURITY)  # noqa: RUF009
    cert: File | None = _option(None, "Client certificate.", SECURITY)  # noqa: RUF009
    cert_key: File | None = _option(None, "Its key.", SECURITY)  # noqa: RUF009

    def policies(self, policy: File) -> dict[str, File]:
        """The file of each space."""
        from veilstream.gateway.nats.names import DEFAULT_SPACE

        found = {DEFAULT_SPACE: policy}
        for text in self.space:
            name, _, file = text.partition("=")
            if not (name and file and name.isprintable()) or name in found:
                raise InputError(f"`space` takes NAME=POLICY, every name once, found {text!r}")
            found[name] = file
        return found

    def tls(self, always: bool = False) -> Tls | None:
        from veilstream.gateway.tls import Tls

        files = (self.ca, self.cert, self.cert_key)
        return Tls(*(None if f is None else os.fspath(f) for f in files)) if always or self.ca or self.cert else None

    def worker(self, policy: File, **more: Any) -> NatsSettings:
        """more: of `NatsSettings`."""
        from veilstream.gateway.nats.client import LinkSettings
        from veilstream.gateway.nats.layout import NatsSettings
        from veilstream.gateway.nats.names import Names

        urls = tuple(part.strip() for part in (self.nats or "").split(",") if part.strip())
        creds = None if self.nats_creds is None else os.fspath(self.nats_creds)
        password, user = secret("VEIL_NATS_PASSWORD", self.password_file), None
        if password is not None:  # nats-py takes a user alone for a token
            user = next((name for url in urls if (name := user_of(url)) is not None), None)
            urls = tuple(re.sub("//[^/@:]*@", "//", url) for url in urls)
        link = LinkSettings(urls, creds, user, password, self.tls())
        return NatsSettings(os.fspath(self.nats_key or f"{policy}.key"), link, Names(self.prefix), **more)


@dataclass(frozen=True, kw_only=True)
class ServeSpec(StoreSpec, ClusterSpec):
    """A gateway: its policy, what it serves, where it is connected, and what it keeps."""

    policy: File | None = _option(None, "The policy file (.veil).", RELEASE)  # noqa: RUF009
    clock: bool = _option(False, "One release per step and stream, reading or not.", RELEASE)
    max_streams: int = _option(1_000_000, "Streams that may be opened.", RELEASE)
    keep: int | None = _option(None, "Steps per stream the log keeps (all; NATS: 32).", RELEASE)
    columns: str | None = _option(
        None, "Which field is what, as in time=ts,value=glucose (default: as fitted, then by name).", RELEASE
    )
    out_format: Literal["auto", "plain", "owntracks"] = _option(
        "auto", "auto (as the reading), plain or owntracks.", SECURITY
    )

    mqtt: str | None = _option(
        None, "Broker; mqtts:// encrypts, a user goes into the URL.", MQTT, metavar="[mqtt[s]://][USER@]HOST[:PORT]"
    )
    source: str = _option("in/+", "Topic filter of readings.", MQTT, flag="in")
    target: str = _option("out/+", "Topics of releases.", MQTT, flag="out")
    route: Sequence[str] = _option((), "One more policy, for its own topics.", MQTT, metavar="'IN OUT POLICY [SPACE]'")
    client_id: str | None = _option(None, "Session name (default: from the store).", MQTT)
    status_topic: str = _option("veil/status", "online / offline, retained; also the last will.", MQTT)
    retain: bool = _option(False, "Publish releases retained.", MQTT)
    republish: int = _option(1000, "Confirmed releases sent again after a break.", MQTT)
    homeassistant: bool = _option(False, "Announce every stream to Home Assistant.", MQTT)
    discovery_prefix: str = _option("homeassistant", "Where it listens for that.", MQTT)

    http: str | None = _option(None, "Listen; on loopback by default.", HTTP, metavar="[HOST:]PORT")
    token_file: File | None = _option(None, "Bearer token (or VEIL_TOKEN).", HTTP)  # noqa: RUF009
    owntracks: str | None = _option(None, "Phones in HTTP mode POST here (/pub).", HTTP, metavar="PATH")
    ingress: str | None = _option(
        None, "Home Assistant's proxy: it may look without a token, in a frame.", HTTP, metavar="ADDRESS"
    )

    forward: str | None = _option(
        None, "POST every release there (or VEIL_FORWARD), as OwnTracks does.", OWNTRACKS, metavar="URL"
    )
    owntracks_key: File | None = _option(  # noqa: RUF009
        None, "Secrets of encrypted messages, one a line (or VEIL_OWNTRACKS_KEY).", OWNTRACKS
    )
    owntracks_key_out: File | None = _option(  # noqa: RUF009
        None, "Encrypt releases under this secret (or VEIL_OWNTRACKS_KEY_OUT).", OWNTRACKS
    )

    partitions: int | None = _option(None, "Most workers that share the work (16).", NATS)
    replicas: int | None = _option(None, "Nodes that hold everything (3; 1 without a cluster).", NATS)
    rebind: bool = _option(False, "The memory belongs to this policy from now on.", NATS)

    def __post_init__(self) -> None:
        if self.policy is None:
            raise InputError(
                "which policy? give its file: veil serve policy.veil, or policy = ... in `config=veil.toml`"
            )
        if self.nats is not None:
            for name in ("mqtt", "http", "store", "no_store", "forward", "audience"):
                if getattr(self, name):
                    raise InputError(
                        f"`{name}` does not go with `nats`, whose workers keep their memory in the cluster"
                    )
            return
        if self.mqtt is None and self.http is None:
            raise InputError("nothing to serve: give `mqtt=HOST`, `http=PORT`, both, or `nats=URL`")
        if self.clock and self.mqtt is None and self.forward_url is None:
            raise InputError("`clock` publishes to a broker: give `mqtt=HOST` as well, or `nats=URL`, or `forward=URL`")
        for name in ("route", "homeassistant"):
            if self.mqtt is None and getattr(self, name):
                raise InputError(f"`{name}` needs `mqtt=HOST`")
        if self.http is None and self.owntracks is not None:
            raise InputError("`owntracks` needs `http=PORT`")
        for audience in self.audiences:
            if (audience.out is None or self.mqtt is None) and (audience.token_file is None or self.http is None):
                raise InputError(
                    f"`audience` {audience.name!r} would get nothing: give it out=TOPIC with `mqtt=HOST`, or "
                    "token-file=FILE with `http=PORT`"
                )

    @property
    def forward_url(self) -> str | None:
        return self.forward or os.environ.get("VEIL_FORWARD") or None

    @property
    def needs(self) -> list[tuple[str, str]]:
        """Modules that this gateway needs, each with the extra that brings it."""
        keys = self.owntracks_key or self.owntracks_key_out
        keys = keys or os.environ.get("VEIL_OWNTRACKS_KEY") or os.environ.get("VEIL_OWNTRACKS_KEY_OUT")
        wanted = {
            ("nats", "nats"): self.nats,
            ("nkeys", "nats"): self.nats and self.nats_creds,
            ("mqtt5", "mqtt"): self.mqtt,
            ("aiohttp", "http"): self.http or self.forward_url,
            ("nacl", "owntracks"): keys,
        }
        return [needed for needed, why in wanted.items() if why]

    # --- what it makes ---------------------------------------------------------------------------------

    def routes(self) -> list[tuple[Route, File]]:
        """Routes and their policies. A space has a name of its own, whatever its topics are called; by default that of
        its policy file. The first one has none."""
        from veilstream.gateway.topics import Route

        assert self.policy is not None
        found: list[tuple[Route, File]] = [(Route(self.source, self.target, "", self.out_format), self.policy)]
        for text in self.route:
            parts = text.split()
            if len(parts) not in (3, 4):
                raise InputError(f"`route` needs 'IN OUT POLICY', or 'IN OUT POLICY SPACE', found {text!r}")
            source, target, file = parts[:3]
            space = parts[3] if len(parts) == 4 else Path(file).stem
            if space in {route.space for route, _ in found} or not space.isprintable():
                raise InputError(
                    f"`route`: every space needs a name of its own, add it: '{source} {target} {file} NAME'"
                )
            found.append((Route(source, target, space, self.out_format), file))
        return found

    def spaces(self, files: Mapping[str, File]) -> dict[str, Space]:
        seals = self._seals()
        own = {name: self.space_of(file, self.columns, seals) for name, file in files.items()}
        return self.with_audiences(own, seals)

    def shared(self, spaces: Mapping[str, Space], routes: Sequence[Route]) -> list[Route]:
        """The topics of audiences: of the same streams as the readings behind them."""
        from veilstream.gateway.space import root
        from veilstream.gateway.topics import Route

        found = []
        for audience in self.audiences:
            if audience.out is not None:
                source = next(r.source for r in routes if r.space == root(spaces, audience.name))
                found.append(Route(source, audience.out, audience.name, self.out_format))
        return found

    def serving(self) -> Serving:
        from veilstream.gateway.scheduler import Serving

        return Serving(self.clock, self.max_ahead, self.max_streams, keep=self.keep, opens=self._opens())

    def broker(self, store_id: str) -> BrokerSettings:
        from veilstream.gateway.broker import BrokerSettings

        url = place(self.mqtt or "", "mqtt")
        if url.scheme not in ("mqtt", "mqtts") or not url.hostname or url.path.strip("/"):
            raise InputError("`mqtt`: give the broker's name, as in localhost, broker:1883 or mqtts://user@broker")
        if url.password is not None:
            raise InputError("`mqtt` holds a password: leave it out, and set VEIL_MQTT_PASSWORD or `password_file`")
        tls, user = self.tls(url.scheme == "mqtts"), user_of(self.mqtt or "")
        port, name = url.port or PORTS["mqtt" if tls is None else "mqtts"], self.client_id or f"veil-{store_id}"
        password = secret("VEIL_MQTT_PASSWORD", self.password_file)
        status, republish, retain = self.status_topic, self.republish, self.retain
        return BrokerSettings(url.hostname, port, name, user, password, tls, status, republish=republish, retain=retain)

    def listener(self) -> HttpSettings | None:
        if self.http is None:
            return None
        from veilstream.gateway.guard import HttpSettings

        url = place(self.http if ":" in self.http else f":{self.http}", "http")
        port = PORTS["http"] if url.port is None else url.port
        token = secret("VEIL_TOKEN", self.token_file)
        theirs = {a.name: secret("", a.token_file) or "" for a in self.audiences if a.token_file is not None}
        return HttpSettings(port, url.hostname or "127.0.0.1", token, self.owntracks, self.ingress, theirs)

    def receiver(self) -> ForwardSettings | None:
        if self.forward_url is None:
            return None
        from veilstream.gateway.forward import ForwardSettings

        return ForwardSettings(self.forward_url, self.out_format)

    def _opens(self) -> Opens | None:
        secrets = secret("VEIL_OWNTRACKS_KEY", self.owntracks_key)
        if secrets is None:
            return None
        from veilstream.gateway.owntracks import opener

        return opener(secrets.splitlines())

    def _seals(self) -> Seals | None:
        out = secret("VEIL_OWNTRACKS_KEY_OUT", self.owntracks_key_out)
        if out is None:
            return None
        if out in (secret("VEIL_OWNTRACKS_KEY", self.owntracks_key) or "").splitlines():
            raise InputError("`owntracks_key_out` must be another secret: who reads releases could read the readings")
        from veilstream.gateway.owntracks import sealer

        return sealer(out)


def place(text: str, scheme: str) -> SplitResult:
    """HOST, HOST:PORT, [IPV6]:PORT or a whole URL."""
    text = text.strip()
    try:
        url = urlsplit(text if "//" in text else f"{scheme}://{text}")
        assert url.port is None or url.port >= 0  # it is read here, where it may be wrong
    except ValueError:
        raise InputError(f"a port must be a number up to 65535, found {text.rpartition(':')[2]!r}") from None
    return url


def user_of(url: str) -> str | None:
    """Percent-encoding undone."""
    user = place(url, "mqtt").username
    return None if user is None else unquote(user)


def secret(variable: str, file: File | None) -> str | None:
    """From a file, or from the environment."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        with open(file, "rb") as source:
            if os.fstat(source.fileno()).st_mode & 0o077:
                raise InputError(f"the secret in {file} is open to other users; run: chmod 600 {file}")
            return source.read().decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the secret in {file}") from None
