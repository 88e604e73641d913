"""A verb's flags from a file and from the environment, read off the verb itself: there is no second list of them.

    command line  >  VEIL_SERVE_MAX_AHEAD  >  max-ahead in the file  >  the flag's default

Keys are the flags without their dashes in front (and `policy`), all at the top of the file: switches are true or false,
numbers are numbers, flags that may be given again are lists (one a line in the environment). Paths are as on the
command line. Secrets have no keys: their flags name files. No file is read unless it is named.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, get_args, get_origin

import typer.core

from veilstream.errors import InputError

FILE, SHOW, JSON = "config", "show_config", "json_out"
NOT_KEYS = (FILE, SHOW, JSON, "help")
SECRETS = {
    "token": "token-file = FILE, or VEIL_TOKEN",
    "password": "password-file = FILE, or VEIL_MQTT_PASSWORD",
    "mqtt-password": "password-file = FILE, or VEIL_MQTT_PASSWORD",
    "nats-password": "password-file = FILE, or VEIL_NATS_PASSWORD",
}
LOGIN = re.compile(r"://[^/@\s]*@")  # a URL that says who
WORDS = {True: ("true", "1", "yes", "on"), False: ("false", "0", "no", "off")}
LONGEST = 1 << 20  # bytes of a file


@dataclass(frozen=True)
class Key:
    """One flag: its parameter, how it is called, and what it takes."""

    name: str  # of the parameter
    key: str  # in the file
    kind: type  # bool, int, float, str or Path
    many: bool

    @classmethod
    def of(cls, name: str, key: str, hint: Any) -> "Key":
        hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if isinstance(hint, UnionType):
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        many = get_origin(hint) is list
        return cls(name, key, get_args(hint)[0] if many else hint, many)

    @property
    def takes(self) -> str:
        one = {bool: "true or false", int: "a whole number", float: "a number"}.get(self.kind, "a text in quotes")
        return "a list of texts" if self.many else one

    def read(self, value: Any, where: str) -> Any:
        """A value of a TOML file as the command line would have given it."""
        if self.many:
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise InputError(f"{where}: {self.key} must be {self.takes}, found {_kind(value)}")
            return [self._one(v, where) for v in value]
        return self._one(value, where)

    def _one(self, value: Any, where: str) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            bool: isinstance(value, bool),
            int: number and isinstance(value, int),
            float: number,
        }.get(self.kind, isinstance(value, str) or (number and isinstance(value, int) and self.kind is str))
        if not fits:
            raise InputError(f"{where}: {self.key} must be {self.takes}, found {_kind(value)}")
        if isinstance(value, str) and LOGIN.search(value):
            raise InputError(f"{where}: {self.key} holds a login, and this file is no place for secrets: leave it out "
                             f"there and set VEIL_FORWARD, or user and password-file")  # fmt: skip
        return self.kind(value)

    def parse(self, text: str, where: str) -> Any:
        """The text of an environment variable."""
        if self.many:
            return [line.strip() for line in text.splitlines() if line.strip()]
        if self.kind is bool:
            for meant, words in WORDS.items():
                if text.strip().lower() in words:
                    return meant
            raise InputError(f"{where} must be true or false, found {text[:40]!r}")
        try:
            return self.kind(text)
        except ValueError:
            raise InputError(f"{where} must be {self.takes}, found {text[:40]!r}") from None


def _kind(value: Any) -> str:
    """What a value is; its text stays where it is."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def with_config(verb: Callable[..., None], prefix: str) -> type[typer.core.TyperCommand]:
    """The command of a verb that has `config`, `show_config` and `json_out` among its parameters."""
    hints = {name: p.annotation for name, p in signature(verb).parameters.items()}

    class Command(typer.core.TyperCommand):
        PREFIX: ClassVar = prefix

        def invoke(self, ctx: Any) -> Any:
            flags = {p.name: _shown(p) for p in self.params if p.name is not None}
            keys = [Key.of(n, flags[n], hint) for n, hint in hints.items() if n in flags and n not in NOT_KEYS]
            told = {k.name for k in keys if _told(ctx, k.name)}
            came = dict.fromkeys(told, "command line")
            named = ctx.params[FILE] or os.environ.get(f"{prefix}CONFIG")
            found: dict[str, tuple[Any, str]] = {}
            if named:
                found |= {k: (v, str(named)) for k, v in of_file(Path(named), keys, _verb(prefix)).items()}
            found |= {k: (v, where) for k, (v, where) in of_environment(os.environ, keys, prefix).items()}
            for name, (value, where) in found.items():
                if name not in told:
                    ctx.params[name], came[name] = value, where
            if ctx.params[SHOW]:
                show(keys, ctx.params, came, bool(ctx.params[JSON]))
                return None
            return super().invoke(ctx)

    return Command


def _shown(param: Any) -> str:
    """How the file calls a parameter: by its longest flag, or an argument by its name."""
    return str(max(param.opts, key=len)).lstrip("-")


def _verb(prefix: str) -> str:
    return "veil " + prefix.split("_")[1].lower()


def _told(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def of_file(path: Path, keys: list[Key], verb: str) -> dict[str, Any]:
    """Parameter -> value of everything that the file says."""
    try:
        with path.open("rb") as source:
            data = source.read(LONGEST + 1)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror})") from None
    try:
        said = tomllib.loads(data.decode("utf-8")) if len(data) <= LONGEST else None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InputError(
            f"{path}: no TOML: {problem if isinstance(problem, ValueError) else 'nested too deep'}"
        ) from None
    if said is None:
        raise InputError(f"{path}: too long for a configuration")
    by_key, found = {k.key: k for k in keys}, dict[str, Any]()
    for word, value in said.items():
        name = word.replace("_", "-")
        key = by_key.get(name)
        if key is None or isinstance(value, dict):
            raise InputError(f"{path}: {_unknown(name, value, list(by_key), verb)}")
        if key.name in found:
            raise InputError(f"{path}: {name} is there twice, with - and with _")
        found[key.name] = key.read(value, str(path))
    return found


def _unknown(name: str, value: Any, known: list[str], verb: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in name[:40])
    if isinstance(value, dict):
        return f"no tables here, found [{shown}]: every key stands at the top of the file"
    if name in SECRETS:
        return f"{shown} is a secret, and secrets are not written here: {SECRETS[name]}"
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"{verb} --help lists the flags, which are the keys"
    return f"unknown key {shown!r}; {hint}"


def of_environment(environ: Mapping[str, str], keys: list[Key], prefix: str) -> dict[str, tuple[Any, str]]:
    """Parameter -> value and variable, of every variable with the prefix."""
    by_name = {prefix + k.key.upper().replace("-", "_"): k for k in keys}
    found = {}
    for name in sorted(n for n in environ if n.startswith(prefix) and n != f"{prefix}CONFIG"):
        if name not in by_name:
            near = get_close_matches(name, by_name, 1)
            hint = f"did you mean {near[0]}?" if near else f"{_verb(prefix)} --help lists the flags"
            raise InputError(f"unknown variable {name[:60]} in the environment; {hint}")
        found[by_name[name].name] = by_name[name].parse(environ[name], name), name
    return found


# --- what holds ----------------------------------------------------------------------------------------------


def show(keys: list[Key], values: Mapping[str, Any], came: Mapping[str, str], as_json: bool) -> None:
    """The configuration that holds, as a file that says the same; passwords in URLs are left out."""
    from veilstream.apps.cli.common import print_json

    plain = {k: _plain(values[k.name]) for k in keys}
    if as_json:
        print_json({k.key: {"value": v, "from": came.get(k.name, "default")} for k, v in plain.items()})
        return
    for key, value in plain.items():
        where = came.get(key.name)
        if value is None:
            print(f"# {key.key} =    ({key.takes})")
        else:
            print(f"{key.key} = {_toml(value)}" + (f"    # {where}" if where else ""))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bool | int | float | NoneType):
        return value
    return LOGIN.sub("://...@", str(value))


def _toml(value: Any) -> str:
    import json

    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # a basic string of TOML escapes as JSON does, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
