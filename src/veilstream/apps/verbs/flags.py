"""A line of the library as the command line says it."""

import re

# what the command line calls a field of the library, where it is not its name with dashes
FLAGS = {
    "period_s": "--period",
    "max_gap_s": "--max-gap",
    "max_speed_kmh": "--max-speed",
    "eps_m": "--eps",
    "grid_m": "--grid",
    "cells_m": "--cells",
    "resolution_m": "--resolution",
    "n_states": "--states",
    "token": "--token-file or VEIL_TOKEN",
    "urls": "--nats",
    "creds": "--nats-creds FILE",
    "key_file": "--nats-key",
    "password": "--password-file (or VEIL_NATS_PASSWORD)",
    "ca_file": "--ca",
}
_FIELD = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


def in_flags(line: str) -> str:
    """A line of the library as the command line says it: `min_samples=3` is --min-samples 3, `force=True` is --force.

    The library names a field that a caller can set in backquotes; nothing else of one word stands in them.
    """

    def flag(found: re.Match[str]) -> str:
        name = FLAGS.get(found[1], "--" + found[1].replace("_", "-"))
        value = (found[2] or "True").strip("'")
        return name if value == "True" else f"{name} {repr(value) if ' ' in value else value}"

    return _FIELD.sub(flag, line)
