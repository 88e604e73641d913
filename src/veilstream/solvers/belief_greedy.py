"""Belief-greedy: Blahut-Arimoto at the provider's exact belief, step by step, no look-ahead.

Its rates are estimated by simulation; there is no finite table to compute them from.
"""

from dataclasses import dataclass

from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.evaluate import evaluate
from veilstream.model.information import Array
from veilstream.model.problem import Problem
from veilstream.solvers.solution import Point, Progress, Solver


@dataclass(frozen=True)
class BeliefGreedy(Solver):
    steps: int = 200
    streams: int = 64
    tolerance: float = 1e-4  # bits, of each step's Blahut-Arimoto
    seed: int = 0

    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]:
        points = []
        for i, weight in enumerate(weights):
            rule = GreedyRule(problem.cost(weight), self.tolerance)
            policy = BeliefPolicy(problem.chain, rule)

            def tell(done: float, what: str, i: int = i) -> None:
                if progress:
                    progress((i + done) / len(weights), f"{what} weight {i + 1} of {len(weights)}")

            ev = evaluate(problem, policy, self.steps, self.streams, seed=self.seed, progress=tell)
            points.append(Point.estimated(policy, ev))
        return points
