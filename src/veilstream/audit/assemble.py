"""The audit of a policy file: its claim, its recorded data if there is any, the verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from veilstream.artefact import Artefact
from veilstream.audit.run import Audit, audit
from veilstream.audit.settings import Options, Progress
from veilstream.audit.source import LaterData, later_data
from veilstream.audit.traces import Ints
from veilstream.audit.verdict import Check, Claim, check, claim_of, verdict
from veilstream.control.limit_check import LimitCheck, Verdict, limits_json, weakest
from veilstream.control.replay import OnCourse
from veilstream.errors import InputError
from veilstream.shown import Rows, Shown
from veilstream.solvers.warnings import about_data, about_policy, limits_of
from veilstream.units import off

if TYPE_CHECKING:
    from veilstream.control.feedback import Feedback
    from veilstream.data.readings import Readings
    from veilstream.data.recording import Recording


@dataclass(frozen=True, eq=False, repr=False)
class Assessment(Shown):
    """What a file claims, what was found, and whether the one stands against the other.

        >>> import veilstream as vs
        >>> found = vs.audit(vs.solve("builtin:binary", avg=0.1), streams=20, steps=60)
        >>> found
        <Assessment of causal-ba: the claim stands>
        >>> found.check.stands, found.claim.leakage > 0
        (True, True)

    `.words` is the verdict, `.audit` the figures behind it.
    """

    audit: Audit
    claim: Claim | None
    check: Check
    words: str
    warnings: tuple[str, ...] = ()  # what must stand beside it
    record: OnCourse | None = None  # on the recorded streams as a gateway would release them
    later: LaterData | None = None  # on those that the model was not fitted to
    limits: Sequence[LimitCheck] = ()  # whether later data shows them kept

    @property
    def fails(self) -> bool:
        """Whether the claim is contradicted, or a limit broken on later data."""
        return not self.check.stands or weakest(self.limits) is Verdict.BROKEN

    def about(self) -> tuple[str, Rows]:
        verdict = weakest(self.limits)
        stands = "the claim stands" if verdict is None else f"limit {verdict}; leakage as claimed under its chain"
        if not self.check.stands:
            stands = "THE CLAIM IS CONTRADICTED"
        rows = [("!", line) for line in (*self.check.contradictions, *self.warnings)]
        return f"of {self.audit.policy.name}: {stands}", [("verdict", self.words), *rows]

    def to_json(self) -> dict[str, Any]:
        stands: dict[str, Any] = {"stands": self.check.stands, "contradictions": list(self.check.contradictions)}
        felt = {} if self.record is None else self.record.to_json()
        felt |= {} if self.later is None else self.later.to_json()
        felt |= limits_json(self.limits)
        stands["warnings"] = list(self.warnings)
        return {**stands, "verdict": self.words, **self.audit.policy.to_json(), **felt}


def audit_artefact(
    artefact: Artefact,
    readings: Readings | None = None,
    recording: Recording | None = None,
    *,
    sequences: Sequence[Ints] | None = None,
    first: Sequence[int] | Ints | None = None,
    record: OnCourse | None = None,
    later: LaterData | None = None,
    name: str | None = None,
    against: Sequence[str] = (),
    options: Options | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """What adversaries learn from the releases of a policy file.

    readings: recorded data, encoded as the file's own recording says unless another one is given.
    sequences: instead of readings, symbols that are encoded already; first: the public numbers of their first steps;
    record, later: what is known of their releases, on the data that was fitted and on what is later.
    name: what to call the policy; by default the method that made it.
    """
    policy, problem, states = artefact.policy, artefact.problem, artefact.states
    warnings = about_data(artefact.provenance)
    if policy is None or problem is None:
        raise InputError("this file is a model without a policy; run `veil solve` on it first")
    if readings is not None:
        from veilstream.audit.source import on_record, recorded_runs, strange

        runs = recorded_runs(readings, artefact, recording)
        sequences, first, record = runs.sequences, runs.first, on_record(artefact, runs)
        later = later_data(artefact, runs)
        warnings = strange(artefact, runs) + warnings
    later = later or later_data(artefact)
    claim = claim_of(artefact.provenance, problem, policy)
    found = audit(
        artefact,
        sequences,
        first,
        name=name or method_of(artefact),
        claimed=None if claim is None else claim.leakage,
        against=against,
        options=options,
        progress=progress,
    )
    limits = limits_of(artefact, None if later is None else later.figures)
    told = [check.words for check in limits] + ([] if later is None else later.changed(artefact.unit))
    if record is not None and states is not None:
        told.append(felt_words(record, artefact.unit, policy.moves_by))
    if later is not None:
        told.append(later.words(artefact.unit))
    words = "\n".join([*told, verdict(found, claim, problem.chain)])
    if claim is not None:
        warnings = about_policy(claim.leakage, problem.chain) + warnings
    return Assessment(found, claim, check(found, claim), words, tuple(warnings), record, later, limits)


def felt_words(record: OnCourse, unit: str, rule: Feedback | None = None) -> str:
    words = (
        f"On your recorded data a release had {off(f'{record.felt:.3g}', unit)}, and revealed "
        f"{max(record.bits, 0.0):.3f} ± {1.96 * record.bits_se:.3f} bits per step, starts and gaps included."
    )
    if record.rungs and record.charged is not None and rule is not None:
        used = [i for i, share in enumerate(record.rungs) if share > 0]
        words += (
            f" Its limit is {rule.limit:.3g} {unit or 'units'}: feedback moved it {record.moves:.0f} times, between "
            f"rungs {used[0]} and {used[-1]} of {len(record.rungs)}, and its meter charged {record.charged:.3f} bits "
            "per step. What is said of the fitted chain and of adversaries is of its first rung."
        )
    return words


def method_of(artefact: Artefact) -> str:
    """The method that the file says made it; what it says may be anything."""
    said = artefact.provenance.get("solution")
    name = str(said.get("method", "policy")) if isinstance(said, dict) else "policy"
    return name[:40] if name.isprintable() else "policy"
