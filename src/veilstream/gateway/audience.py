"""Audiences behind a policy, as they are asked for: 'POLICY name=public out=shared/+ ceiling=20 token-file=FILE'.

Each gets releases drawn from the finer ones of the same step, in the same transaction: on a topic of its own, over HTTP
by a token of its own that shows nothing finer, or as the output of `veil release`. It may have a ceiling of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilstream.artefact import load
from veilstream.errors import InputError
from veilstream.gateway.owntracks import Seals
from veilstream.gateway.space import Space
from veilstream.units import parse_quantity

KEYS = ("name", "out", "ceiling", "token-file")


@dataclass(frozen=True)
class AudienceSpec:
    name: str
    policy: str
    out: str | None = None  # topic
    ceiling: float | None = None  # bits
    token_file: str | None = None

    @classmethod
    def read(cls, text: str) -> AudienceSpec:
        try:
            policy, *rest = shlex.split(text)
        except ValueError:
            policy, rest = "", []
        said = dict(word.partition("=")[::2] for word in rest)
        if not policy or len(said) < len(rest) or not set(said) <= set(KEYS) or not all(said.values()):
            raise InputError(f"`audience` takes 'POLICY {' '.join(f'{k}=..' for k in KEYS)}', found {text!r}")
        name = said.get("name", Path(policy).stem)
        if not name.isprintable():
            raise InputError(f"`audience`: a name must be printable, found {name!r}")
        ceiling = parse_quantity(said["ceiling"], "", "`audience`: ceiling") if "ceiling" in said else None
        return cls(name, policy, said.get("out"), ceiling, said.get("token-file"))


def with_audiences(
    spaces: Mapping[str, Space], audiences: Sequence[AudienceSpec], force: bool = False, seals: Seals | None = None
) -> dict[str, Space]:
    """These spaces and those of the audiences, each behind the space that runs the policy it was made behind."""
    found = dict(spaces)
    for audience in audiences:
        if audience.name in found or not audience.name:
            raise InputError(f"`audience`: every audience needs a name of its own, {audience.name!r} is there already")
        artefact = load(audience.policy)
        behind = None if artefact.finer is None else artefact.finer.sha256
        finer = next((name for name, space in found.items() if space.binding.policy == behind), None)
        if finer is None:
            raise InputError(
                f"{audience.policy}: no audience of what is served: it must be made behind that very policy "
                "(veil solve MODEL --behind POLICY), or behind an audience named before it"
            )
        try:
            found[audience.name] = Space(artefact, audience.ceiling, None, force, seals, (finer, found[finer]))
        except InputError as fault:
            raise InputError(f"{audience.policy}: {fault}") from None
    return found


def root(spaces: Mapping[str, Space], name: str) -> str:
    """The space that looks at the readings an audience's releases come from."""
    finer = spaces[name].finer
    return name if finer is None else root(spaces, finer)
