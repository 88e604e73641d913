"""`veil serve`: the gateway."""

from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.config import PREFIX as PREFIX
from veilstream.apps.cli.config import Configured, read_config
from veilstream.apps.cli.options import Flags, known
from veilstream.errors import need
from veilstream.gateway.spec import ServeSpec

EXAMPLES = """
veil serve policy.veil --http 8080
veil serve policy.veil --mqtt localhost --http 8080 --store veil.db --ceiling 50
veil serve policy.veil --mqtt mqtts://gate@broker --in 'owntracks/+/+' --out 'shared/+/+'
veil serve family.veil --mqtt localhost --option audience='public.veil out=public/+'
veil serve policy.veil --http 0.0.0.0:8080 --owntracks /pub --forward http://recorder:8083/pub
veil serve policy.veil --mqtt localhost --clock --route 'meters/+ shared/meters/+ meter.veil'
veil serve policy.veil --mqtt localhost --in 'owntracks/+/+' --out 'shared/+/+' --homeassistant
veil serve policy.veil --nats nats://n1:4222,nats://n2:4222    (as many of these workers as wanted)
veil serve --config veil.toml                   every option as a key; --show-config prints those in force
VEIL_SERVE_CEILING=50 veil serve --config veil.toml --http 8081       the environment, then the command line, win
Secrets come from the environment or a file: VEIL_TOKEN or --token-file, VEIL_MQTT_PASSWORD or VEIL_NATS_PASSWORD or \
--password-file, VEIL_OWNTRACKS_KEY or owntracks-key (and _OUT, -out); a URL that holds one from VEIL_FORWARD.
"""
FLAGS = Flags(
    *("policy", "mqtt", "in", "out", "route", "homeassistant", "http", "token_file", "owntracks", "forward", "nats"),
    *("password_file", "store", "no_store", "ceiling", "clock", "force"),
    argument="policy",
    rest="audience, meter, max_ahead, keep, columns, out_format, client_id, status_topic, retain, republish, "
    "discovery_prefix, idle, max_streams, ingress, owntracks_key, owntracks_key_out, ca, cert, cert_key, nats_key, "
    "nats_creds, prefix, space, partitions, replicas, rebind",
)


class Serve(Configured):
    more_keys = tuple(name.replace("_", "-") for name in known(ServeSpec))


COMMAND = Serve


def serve(
    spec: Annotated[ServeSpec, FLAGS],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="veil.toml",
            help="Take options from this file; default: none.",
            envvar=f"{PREFIX}CONFIG",
            show_envvar=False,
            is_eager=True,
            callback=read_config,
        ),
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print the options in force, as such a file, and stop.")
    ] = False,
) -> None:
    """Run the gateway: only releases get out. MQTT, HTTP with a status page, or both; or a worker on NATS."""
    from veilstream.gateway.service import serve as run

    for module, extra in spec.needs:
        need(module, extra)
    run(spec)
