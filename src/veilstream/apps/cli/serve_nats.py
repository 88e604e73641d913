"""`veil serve --nats`: one worker on JetStream."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilstream.apps.cli.common import need
from veilstream.apps.cli.release import open_space
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.space import Space


def exclude(others: Mapping[str, object]) -> None:
    """Options of the other gateways that were given."""
    for name, given in others.items():
        if given:
            raise InputError(f"{name} does not go with --nats, whose workers keep their memory in the cluster")


def spaces_of(policy: Path, more: list[str], ceiling: float | None, meter: str, force: bool) -> "dict[str, Space]":
    """The default policy, and one for each --space NAME=POLICY."""
    from veilstream.gateway.nats.names import DEFAULT_SPACE

    spaces = {DEFAULT_SPACE: open_space(policy, ceiling, meter, force)}
    for text in more:
        name, _, file = text.partition("=")
        if not (name and file and name.isprintable()) or name in spaces:
            raise InputError(f"--space takes NAME=POLICY, every name once, found {text!r}")
        spaces[name] = open_space(Path(file), ceiling, meter, force)
    return spaces


def serve_nats(
    spaces: "dict[str, Space]",
    urls: str,
    creds: Path | None,
    user: str | None,
    password: str | None,
    tls: tuple[Path | None, Path | None, Path | None],
    prefix: str,
    form: str,
    **options: Any,
) -> None:
    need("nats", "nats")
    from veilstream.gateway import logs, service
    from veilstream.gateway.nats.link import settings_of
    from veilstream.gateway.nats.names import Names
    from veilstream.gateway.nats.worker import NatsGateway

    if form not in ("auto", "plain", "owntracks"):
        raise InputError(f"unknown output format {form!r}; known: auto, plain, owntracks")
    if creds is not None:
        _check_creds(creds)
    ca, cert, key = (str(f) if f is not None else None for f in tls)
    settings = settings_of(
        urls,
        creds=None if creds is None else str(creds),
        user=user,
        password=password,
        ca_file=ca,
        cert_file=cert,
        key_file=key,
    )
    settings.tls()  # files that cannot be read are found now
    logs.configure()
    gateway = NatsGateway(spaces, settings, Names(prefix), form=form, **options)  # type: ignore[arg-type]
    gateway.probe()
    service.run(gateway, {"nats": gateway.run})


def _check_creds(file: Path) -> None:
    """nats-py reads on for ever in a file that is none."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"no credentials file {str(file)!r} that can be read") from None
    if not all(f"BEGIN {part}" in text for part in ("NATS USER JWT", "USER NKEY SEED")):
        raise InputError(f"{file} is no NATS credentials file: a user JWT and an NKEY seed are needed (nsc makes them)")
    need("nkeys", "nats")
