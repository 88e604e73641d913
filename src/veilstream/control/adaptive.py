"""The rungs of a limit kept by feedback, as one policy (`feedback.py` has the rule and what it guarantees)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.charge import Charge, Proof, prove
from veilstream.control.controller import Controller
from veilstream.control.feedback import Feedback
from veilstream.control.policy import Export, Memory, Policy, restore
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index


@dataclass(frozen=True, eq=False)
class Ladder(Policy, kind="ladder"):
    """Rungs by rising distortion, the one a stream starts from, and the proof behind its charge (`charge.py`).

    The rungs are controllers on one memory, so one number holds all:  memory = rung x M + that of the controller.
    """

    policies: Sequence[Controller]
    feedback: Feedback
    first: int = 0
    proof: Proof | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", tuple(self.policies))
        tables = [p.automaton.table for p in self.policies]
        shapes = {(p.n_states, p.n_outputs, p.n_memories, p.phases) for p in self.policies}
        if len(shapes) != 1 or any(not np.array_equal(tables[0], other) for other in tables):
            raise InputError("the rungs of a ladder must be of one size and number their memories alike")
        if any(p.turn is not None for p in self.policies):
            raise InputError("a rung of a ladder cannot be a schedule")
        if not 0 <= self.first < len(self.policies):
            raise InputError(f"a ladder of {len(self.policies)} rungs has no rung {self.first}")
        if self.feedback.rungs != len(self.policies):
            raise InputError(f"a ladder of {len(self.policies)} rungs has a rule for {self.feedback.rungs}")
        if self.proof is not None:
            R, M = len(self.policies), self.shared
            expected = [(R, M, self.n_states), (R, M, self.n_outputs)]
            if [v.shape for v in self.proof] != expected or not all(np.isfinite(v).all() for v in self.proof):
                raise InputError("the ladder's proof does not fit its rungs")

    def own_meter(self, chain: MarkovChain) -> Charge:
        proof = prove(self.policies, self.first, chain) if self.proof is None else self.proof
        return Charge(self.policies, chain, proof)

    def proved(self, chain: MarkovChain) -> "Ladder":
        """With the proof behind its charge: what a file should carry."""
        return replace(self, proof=prove(self.policies, self.first, chain))

    # --- the loop --------------------------------------------------------------------------------------

    @property
    def chain(self) -> MarkovChain | None:  # type: ignore[override]
        return self.policies[0].chain

    def made_for(self, chain: MarkovChain) -> "Ladder":
        return replace(self, policies=tuple(p.made_for(chain) for p in self.policies))

    @property
    def n_states(self) -> int:
        return self.policies[0].n_states

    @property
    def n_outputs(self) -> int:
        return self.policies[0].n_outputs

    @property
    def shared(self) -> int:
        """M: memories of every rung."""
        return self.policies[0].n_memories

    @property
    def n_memories(self) -> int:
        return len(self.policies) * self.shared

    @property
    def resting(self) -> Controller:
        return self.policies[self.first]

    @property
    def window(self) -> int | None:
        return self.resting.window

    def start(self, n: int | None = None) -> Memory:
        return self.on_rung(self.resting.start(n), np.asarray(self.first))

    def channel(self, memory: Memory) -> Array:
        rung, m = np.divmod(memory, self.shared)
        if rung.ndim == 0:
            return self.policies[int(rung)].channel(m)
        a = np.empty((*rung.shape, self.n_states, self.n_outputs))
        for i in np.unique(rung):
            a[rung == i] = self.policies[i].channel(m[rung == i])
        return a

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        return self.on_rung(self.policies[0].update(memory % self.shared, y), self.rung(memory))

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        return self.on_rung(self.policies[0].skip(memory % self.shared, k), self.rung(memory))

    def at(self, memory: Memory, step: Index) -> Memory:
        return self.on_rung(self.policies[0].at(memory % self.shared, step), self.rung(memory))

    # --- moves -----------------------------------------------------------------------------------------

    @property
    def moves_by(self) -> Feedback:
        return self.feedback

    @property
    def rungs(self) -> int:
        return len(self.policies)

    def rung(self, memory: Memory) -> Index:
        return np.asarray(memory // self.shared)

    def on_rung(self, memory: Memory, rung: Index) -> Memory:
        return np.asarray(rung * self.shared + memory % self.shared)

    def moved(self, memory: Memory, way: Index) -> Memory:
        """One move that way, at a boundary of its rule."""
        return self.on_rung(memory, self.feedback.moved(self.rung(memory), way))

    # --- the file --------------------------------------------------------------------------------------

    def check(self) -> None:
        for policy in self.policies:
            policy.check()

    def export(self) -> Export:
        parts = [p.export() for p in self.policies]
        arrays = {f"{i}.{k}": v for i, (_, part) in enumerate(parts) for k, v in part.items()}
        rule = {**asdict(self.feedback), "felt": list(self.feedback.felt)}
        proof = {} if self.proof is None else self.proof._asdict()
        meta = {"kind": self.kind, "policies": [m for m, _ in parts], "feedback": rule, "first": self.first}
        return meta, {**arrays, **proof}

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "Ladder":
        if "felt" not in meta["feedback"]:
            raise InputError("the moves of this ladder follow an earlier rule; solve again")
        rungs = list[Controller]()
        for i, part in enumerate(meta["policies"]):
            own = {k.removeprefix(f"{i}."): v for k, v in arrays.items() if k.startswith(f"{i}.")}
            rung = restore(part, own, chain, meta["depth"] + 1)
            if not isinstance(rung, Controller):
                raise InputError("the rungs of a ladder must be finite policies")
            rungs.append(rung)
        proof = Proof(arrays["potential"], arrays["law"]) if "potential" in arrays else None
        return cls(rungs, Feedback(**meta["feedback"]), int(meta["first"]), proof)
