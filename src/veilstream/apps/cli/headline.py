"""The headline in human words: how often an adversary is right, the error of a release, then bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veilstream.apps.report.points import guessed
from veilstream.control.policy import Policy
from veilstream.model.chain import MarkovChain
from veilstream.solvers.solution import Solution
from veilstream.units import off

MOST_STATES = 512  # beyond, the adversary's beliefs take longer than the solution


@dataclass(frozen=True)
class Guess:
    """Share of steps at which an adversary who knows chain and policy, and sees every release, identifies the state."""

    right: float
    right_se: float
    blind: float  # without any release: always the commonest (of the hour, where there is a clock)

    @classmethod
    def of(cls, chain: MarkovChain, policy: Policy, seed: int = 0) -> Guess | None:
        """Estimated on data drawn from the chain; None where that would take long."""
        if len(chain) > MOST_STATES:
            return None
        return cls(*guessed(chain, policy, seed))

    def to_json(self) -> dict[str, Any]:
        return {"hit_rate": self.right, "hit_rate_se": self.right_se, "hit_rate_blind": self.blind}


def error_of(solution: Solution) -> float:
    """Mean error on the recorded data; without it, from state to release in the long run."""
    return solution.distortion if solution.record is None else solution.record.error


def bits_of(solution: Solution) -> float:
    """Per step on the recorded data, starts and gaps included; without it, in the long run."""
    return solution.leakage if solution.record is None else solution.record.bits


def headline(guess: Guess | None, felt: float, bits: float, unit: str, thing: str, where: str = "") -> str:
    """One sentence for someone who has never heard of bits. thing: what is hidden, a place or a level; where: on which
    data error and bits were measured."""
    said = f"{where}a release has {off(f'{felt:.3g}', unit)}, and reveals {max(bits, 0.0):.3f} bits per step."
    if guess is None:
        return said[0].upper() + said[1:]
    return (
        f"Under the fitted chain an adversary who sees every release identifies the {thing} in {guess.right:.0%} of "
        f"steps ({guess.blind:.0%} without any release); {said}"
    )
