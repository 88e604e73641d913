"""What every learned method is: a solver that trains at a weight, and by that meets limits."""

from abc import abstractmethod
from typing import Any, ClassVar

from veilstream.control.replay import Course
from veilstream.deep import limits
from veilstream.deep.training import Report, TrainedPolicy
from veilstream.model.problem import Average, Budget, Problem
from veilstream.solvers.solution import Point, Progress, Solver


class Learner(Solver):
    """A solver that trains at a weight: a frozen dataclass with `segments`, `seed`, `checkpoint` and `resume`."""

    method: ClassVar[str]

    @property
    def name(self) -> str:
        return self.method

    @abstractmethod
    def trained(self, problem: Problem, weight: float, report: Report, onward: Any) -> TrainedPolicy:
        """One seed at one weight; from the networks of another weight where there are some."""

    @abstractmethod
    def shorter(self) -> "Learner":
        """The same for a training that goes on from the networks of a weight nearby."""

    def meet(
        self,
        problem: Problem,
        constraint: Average | Budget,
        progress: Progress | None = None,
        course: Course | None = None,
    ) -> tuple[Point, float]:
        """A few trainings, the first at the weight of the exact solver, each from the networks of the one before."""
        return limits.meet(self, problem, constraint, progress, course)
