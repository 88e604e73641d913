"""The rungs of a limit kept by feedback, as one policy (`feedback.py` has the rule and what it guarantees)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.core.chain import MarkovChain
from veilstream.core.charge import Charge
from veilstream.core.feedback import Feedback
from veilstream.core.information import Array, Index
from veilstream.core.phased import Phased, restored_parts
from veilstream.core.policy import Export, Memory
from veilstream.core.potential import Proof, prove
from veilstream.core.steady import LawStep
from veilstream.errors import InputError


@dataclass(frozen=True, eq=False)
class Ladder(Phased, kind="ladder"):
    """Rungs by rising distortion, the one a stream starts from, and the proof behind its charge (`charge.py`)."""

    feedback: Feedback
    first: int = 0
    proof: Proof | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.first < len(self.policies):
            raise InputError(f"a ladder of {len(self.policies)} rungs has no rung {self.first}")
        if self.feedback.rungs != len(self.policies):
            raise InputError(f"a ladder of {len(self.policies)} rungs has a rule for {self.feedback.rungs}")
        if self.proof is not None:
            R, M = len(self.policies), self.shared
            shapes = [v.shape for v in self.proof]
            if shapes != [(R, M, self.n_states), (R, M, self.n_outputs)] or not all(
                np.isfinite(v).all() for v in self.proof
            ):
                raise InputError("the ladder's proof does not fit its rungs")

    def own_meter(self, chain: MarkovChain) -> Charge:
        return Charge(self, chain, prove(self, chain) if self.proof is None else self.proof)

    def proved(self, chain: MarkovChain) -> "Ladder":
        """With the proof behind its charge: what a file should carry."""
        return replace(self, proof=prove(self, chain))

    def following(self, index: Index, k: int) -> Index:
        return index

    def start(self, n: int | None = None) -> Memory:
        return self.with_index(self.policies[self.first].start(n), np.asarray(self.first))

    def at(self, memory: Memory, phase: Index) -> Memory:
        index, m = np.divmod(memory, self.shared)
        return np.asarray(index * self.shared + self.policies[0].at(m, phase))

    @property
    def moves_by(self) -> Feedback:
        return self.feedback

    @property
    def rungs(self) -> int:
        return len(self.policies)

    def rung(self, memory: Memory) -> Index:
        return self.index(memory)

    def moved(self, memory: Memory, way: Index) -> Memory:
        return self.with_index(memory, self.feedback.moved(self.index(memory), way))

    # --- what it can do, while it stays on its first rung ----------------------------------------------------

    def shares(self) -> Sequence[tuple[float, Any]]:
        return self.policies[self.first].shares()

    def law_steps(self, chain: MarkovChain) -> Sequence[LawStep] | None:
        return self.policies[self.first].law_steps(chain)

    def phase_tables(self) -> None:
        """Where it will be depends on the readings."""

    def output_model_at(self, windows: Index, y: Index) -> Array | None:
        return self.policies[self.first].output_model_at(windows, y)

    # --- the file --------------------------------------------------------------------------------------------

    def export(self) -> Export:
        meta, arrays = super().export()
        rule = {**asdict(self.feedback), "felt": list(self.feedback.felt)}
        proof = {} if self.proof is None else self.proof._asdict()
        return {**meta, "feedback": rule, "first": self.first}, {**arrays, **proof}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Ladder":
        if "felt" not in meta["feedback"]:
            raise InputError("the moves of this ladder follow an earlier rule; solve again")
        parts, feedback = restored_parts(meta, arrays, chain), Feedback(**meta["feedback"])
        proof = Proof(arrays["potential"], arrays["law"]) if "potential" in arrays else None
        return cls(parts, feedback, int(meta["first"]), proof)
