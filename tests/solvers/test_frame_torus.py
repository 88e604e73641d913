"""How far a frame is from the best there is, where that can be proved: on a torus a little larger than its reach."""

import numpy as np
import pytest

from veilstream.control.controller import Controller
from veilstream.control.offsets import Offsets, distance
from veilstream.model.chain import MarkovChain
from veilstream.model.lattice import Lattice
from veilstream.model.problem import Average, Problem
from veilstream.solvers.bounds import certify
from veilstream.solvers.frame import WAITED, FrameSweep, Kernel
from veilstream.solvers.solution import Point

SPACING = 0.5
RINGS = {1: 30, 2: 20}  # that reach every place


@pytest.mark.parametrize(
    ("side", "axes", "kernel", "weight", "gap"),
    [
        (31, 1, Kernel(stay=0.8, jump=1.0, wander=0.0, anywhere=1e-3), 1.0, 0.03),
        (15, 1, Kernel(), 1.0, 0.03),
        (9, 2, Kernel(), 2.0, 0.01),
    ],
)
def test_under_its_kernel_a_frame_is_near_the_bound_for_every_mechanism(side, axes, kernel, weight, gap):
    """The kernel around a torus is a chain, the frame's table on it one of a memory of the last release. The frame was
    solved for an unbounded lattice and for gaps, which the torus has not: that is most of what is left."""
    offsets = Offsets(side // 2, axes, RINGS[axes])
    P, n = kernel.matrix(offsets, SPACING), len(offsets)
    sweep = FrameSweep(Lattice(SPACING, axes), offsets, tuple(np.linalg.matrix_power(P, k) for k in WAITED))
    frame = sweep.solve(weight).frame
    apart = (offsets.near[:, None] - offsets.near + side // 2) % side - side // 2  # n x n x axes, the short way around
    at = offsets.index(apart)
    step = P[n // 2, :n] + P[n // 2, n:].sum() / n  # who goes farther is anywhere
    chain, d = MarkovChain(step[at.T]), distance(apart, SPACING)  # z x z', z x y
    table = frame.moves[0][at.T][:, None, :] * np.exp2(-(weight * d + frame.values[at]))  # s x z x y
    own = Controller.of_table(table / table.sum(-1, keepdims=True), 1)
    found = Point.of(Problem(chain, d, Average(weight=weight)), own).objective(weight)
    proved = certify(chain, weight * d, upper=found, seconds=2).lower_bound
    assert proved <= found * (1 + 1e-9) and found <= proved / (1 - gap)
