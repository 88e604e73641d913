"""What releases are to add up to: the readings of recorded streams."""

from dataclasses import dataclass

import numpy as np

from veilstream.control.meter import Unmetered
from veilstream.control.policy import Policy
from veilstream.control.replay import Course
from veilstream.model.information import Array


@dataclass(frozen=True, eq=False)
class Total:
    """levels: what each release adds. errors: the streams, with release - reading where distances stand."""

    levels: Array  # |Y|
    errors: Course
    mean: float  # of the readings

    def off(self, policy: Policy) -> float:
        """Mean release over mean reading, less 1: exact where the policy's memories are numbers."""
        return self.errors.felt(policy) / self.mean

    def spread(self, policy: Policy) -> float:
        """Standard deviation of the total of one release of the streams, relative; by draws."""
        drawn = self.errors.run(policy, Unmetered())
        return float(drawn.felt_se * np.sqrt(drawn.copies) / abs(self.mean))
