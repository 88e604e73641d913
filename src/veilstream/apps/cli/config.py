"""veil.toml: a verb's flags as keys, below the environment and the command line.

    command line  >  VEIL_SERVE_CEILING  >  ceiling in the file  >  the flag's default

typer does the layering: the file is its map of defaults, the variables are those of its flags. Keys are the flags
without their dashes in front (and `policy`), and whatever --option takes, all at the top of the file. Secrets have no
keys: their flags name files. No file is read unless it is named.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from copy import copy
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from veilstream.errors import InputError
from veilstream.units import printable

PREFIX = "VEIL_SERVE_"
NOT_KEYS = ("config", "show_config", "json", "help")
SECRETS = {
    "token": "token-file = FILE, or VEIL_TOKEN",
    "password": "password-file = FILE, or VEIL_MQTT_PASSWORD",
    "mqtt-password": "password-file = FILE, or VEIL_MQTT_PASSWORD",
    "nats-password": "password-file = FILE, or VEIL_NATS_PASSWORD",
}
AUDIENCE = "audience"  # a list of tables, or of texts as the flag takes them
LOGIN = re.compile(r"://[^/@\s]*:[^/@\s]*@")  # a URL with a password
LONGEST = 1 << 20  # bytes of a file


def key_of(param: Any) -> str:
    """How the file calls a parameter: by its longest flag, or an argument by its name."""
    return str(max(param.opts, key=len)).lstrip("-")


def read_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """The file as the map of defaults; called before any other flag is read."""
    params = {key_of(p): p for p in ctx.command.params if p.name not in NOT_KEYS}
    variables = [PREFIX + key.upper().replace("-", "_") for key in (*params, "config")]
    for name in sorted(n for n in os.environ if n.startswith(PREFIX) and n not in variables):
        raise InputError(f"unknown variable {name[:60]} in the environment; {_near(name, variables)}")
    if path is not None:
        more = getattr(ctx.command, "more_keys", ())
        ctx.default_map = _defaults(path, _said(path), params, [key for key in more if key not in params])
    return path


def _said(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as source:
            data = source.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise InputError(f"{path}: too long for a configuration")
        return tomllib.loads(data.decode("utf-8"))
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror})") from None
    except RecursionError:
        raise InputError(f"{path}: no TOML: nested too deep") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: no TOML: {problem}") from None


def _defaults(path: Path, said: Mapping[str, Any], params: Mapping[str, Any], more: Iterable[str]) -> dict[str, Any]:
    """Texts as the command line would have them; keys that are no flags go into --option."""
    found = dict[str, Any]()
    for word, value in said.items():
        name = word.replace("_", "-")
        values = value if isinstance(value, list) else [value]
        if name == AUDIENCE:
            values = [_audience(v) if isinstance(v, dict) else v for v in values]
        texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
        fault = _fault(name, value, params, more)
        if not fault and any(LOGIN.search(text) for text in texts):
            fault = (
                f"{name} holds a login, and this file is no place for secrets: leave it out there and set "
                "VEIL_FORWARD, or password-file"
            )
        if not fault and name in params and params[name].name in found:
            fault = f"{name} is there twice, with - and with _"
        if fault:
            raise InputError(f"{path}: {fault}")
        if name in params:
            found[params[name].name] = texts if params[name].multiple else texts[0]
        else:
            found.setdefault("option", []).extend(f"{name}={text}" for text in texts)
    return found


def _audience(said: Mapping[str, Any]) -> str:
    """A table {policy = .., out = .., ...} as the flag has it."""
    return shlex.join([str(said.get("policy", "")), *(f"{k}={v}" for k, v in said.items() if k != "policy")])


def _fault(name: str, value: Any, params: Mapping[str, Any], more: Iterable[str]) -> str:
    """The fault of a key of the file, in words; "" where there is none."""
    shown = printable(name[:40])
    if isinstance(value, dict):
        return f"no tables here, found [{shown}]: every key stands at the top of the file"
    if name in SECRETS:
        return f"{shown} is a secret, and secrets are not written here: {SECRETS[name]}"
    if name not in params:
        return "" if name in more else f"unknown key {shown!r}; {_near(name, [*params, *more])}"
    if isinstance(value, list) != params[name].multiple:
        return f"{name} must be {'a list of texts' if params[name].multiple else 'one value, found a list'}"
    return ""


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else "veil serve --help lists the flags, which are the keys"


# --- what holds ------------------------------------------------------------------------------------------


class Configured(typer.core.TyperCommand):
    """A command that says which flags hold, as a file that says the same; passwords in URLs are left out."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        for param in self.params:
            if getattr(param, "multiple", False):  # in the environment one a line, as some hold spaces
                param.type = copy(param.type)
                param.type.envvar_list_splitter = "\n"  # type: ignore[misc]  # of this one alone

    def invoke(self, ctx: Any) -> Any:
        if not ctx.params["show_config"]:
            return super().invoke(ctx)
        found = {}
        for param in self.params:
            if param.name not in NOT_KEYS:
                source, key = ctx.get_parameter_source(param.name).name, key_of(param)
                where = {"COMMANDLINE": "command line", "ENVIRONMENT": PREFIX + key.upper().replace("-", "_")}
                where |= {"DEFAULT_MAP": str(ctx.params["config"])}
                found[key] = {"value": _plain(ctx.params[param.name]), "from": where.get(source, "default")}
        if ctx.params["json"]:
            print(json.dumps(found))
            return None
        for key, one in found.items():
            said = f"# {key} =" if one["value"] is None else f"{key} = {_toml(one['value'])}"
            print(said + ("" if one["from"] == "default" else f"    # {one['from']}"))
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float) else LOGIN.sub("://...@", str(value))


def _toml(value: Any) -> str:
    """JSON, which TOML reads alike but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
