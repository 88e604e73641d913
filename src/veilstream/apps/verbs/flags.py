"""A line of the library as the command line says it."""

import re
from dataclasses import fields

# what the command line calls a setting that is no field of a spec
FLAGS = {
    "token": "--token-file or VEIL_TOKEN",
    "urls": "--nats",
    "user": "--nats nats://USER@HOST",
    "creds": "--option nats-creds=FILE",
    "key_file": "--option nats-key=FILE",
    "password": "--password-file (or VEIL_NATS_PASSWORD)",
    "ca_file": "--option ca=FILE",
}
# fields that few set: --option takes them
BY_OPTION = re.findall(
    r"\w+",
    "bin gaps noise cells_m min_samples time_format max_gap_s fill max_speed_kmh max_order smoothing seed "
    "max_bits pool certify_seconds points stay jump anywhere per_reading idle max_ahead keep owntracks_key "
    "owntracks_key_out ingress prefix space status_topic max_streams partitions replicas rebind client_id ca "
    "cert cert_key nats_creds retain discovery_prefix back pairs meter mechanism scheduler",
)
_FIELD = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


def in_flags(line: str) -> str:
    """A line of the library as the command line says it: `min_samples=3` is --min-samples 3, `force=True` is --force.

    The library names a field that a caller can set in backquotes; nothing else of one word stands in them.
    """
    if "`" not in line:
        return line
    from veilstream.data.spec import FitSpec

    names = {f.name: f.metadata["flag"] for f in fields(FitSpec) if f.metadata["flag"]}

    def flag(found: re.Match[str]) -> str:
        name, value = names.get(found[1], found[1].replace("_", "-")), (found[2] or "True").strip("'")
        if found[1] in BY_OPTION:
            return f"--option {name}={value if found[2] else '...'}"
        said = FLAGS.get(found[1], f"--{name}")
        return said if value == "True" else f"{said} {repr(value) if ' ' in value else value}"

    return _FIELD.sub(flag, line)
