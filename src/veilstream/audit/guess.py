"""How often an adversary is right: the first figure of a policy, on the terminal, in a report and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilstream.audit.bayes import infer
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import sampled
from veilstream.control.policy import Policy
from veilstream.data.card import commonest
from veilstream.model.chain import MarkovChain


@dataclass(frozen=True)
class Guess:
    """Share of steps at which an adversary who knows chain and policy, and sees every release, identifies the state."""

    right: float
    right_se: float
    blind: float  # without any release: always the commonest (of the hour, where there is a clock)

    @classmethod
    def of(cls, chain: MarkovChain, policy: Policy, seed: int = 0) -> Guess:
        """Estimated on what `veil audit --quick` draws from the chain, so that both say one figure."""
        streams, steps, _ = (work := AuditSpec(seed=seed)).sizes
        drawn = sampled(chain, policy, steps, streams, seed)
        guess = infer(chain, policy, drawn, whole=False).filter.argmax(-1)
        x, usual = chain.symbols[drawn.z], commonest(chain)
        step = np.arange(streams)[:, None] + np.arange(steps)  # of the clock: streams begin at every hour
        hits, blind = ((g == x)[:, work.burn_in :].mean(1) for g in (guess, usual[step % len(usual)]))
        return cls(float(hits.mean()), float(hits.std(ddof=1) / np.sqrt(len(hits))), float(blind.mean()))

    def words(self, thing: str) -> str:
        """A clause; thing: what a state is, a place or a level."""
        return (
            f"an adversary who sees every release identifies the {thing} in {self.right:.0%} of steps "
            f"({self.blind:.0%} without any release)"
        )

    def to_json(self) -> dict[str, Any]:
        return {"hit_rate": self.right, "hit_rate_se": self.right_se, "hit_rate_blind": self.blind}
