"""Audiences behind a policy, as they are asked for: 'POLICY name=public out=shared/+ ceiling=20 token-file=FILE'.

Each gets releases drawn from the finer ones of the same step, in the same transaction: on a topic of its own, over HTTP
by a token of its own that shows nothing finer, or as the output of `veil release`. It may have a ceiling of its own,
and get its releases some steps late: drawn when the others are, told when they are old.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilstream.artefact import load
from veilstream.data.spec import Recording
from veilstream.errors import InputError
from veilstream.gateway.owntracks import Seals
from veilstream.gateway.space import Space
from veilstream.units import parse_quantity

KEYS = ("name", "out", "ceiling", "token-file", "delay")


@dataclass(frozen=True)
class AudienceSpec:
    name: str
    policy: str
    out: str | None = None  # topic
    ceiling: float | None = None  # bits
    token_file: str | None = None
    delay: str | None = None  # 2d, or 3 steps

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
        return cls(name, policy, said.get("out"), ceiling, said.get("token-file"), said.get("delay"))

    def steps(self, recording: Recording) -> int:
        """How late it is."""
        if self.delay is None:
            return 0
        count = re.fullmatch(r"(\d{1,9}) ?steps?", self.delay)
        return int(count[1]) if count else recording.steps_in(self.delay, "`audience`: delay")


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
            late = audience.steps(artefact.recording)
            found[audience.name] = Space(artefact, audience.ceiling, None, force, seals, (finer, found[finer]), late)
        except InputError as fault:
            raise InputError(f"{audience.policy}: {fault}") from None
    return found
