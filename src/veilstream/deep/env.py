"""`veilstream/BeliefRelease-v0`: the belief MDP as a Gymnasium environment (extra `env`).

    observation   b(z) = P(Z_t = z | releases so far)                      Box(0, 1, |Z|)
    action        logits of a channel, see `channel_of`                    Box(-1, 1, |Z| |Y|)
    reward        -(L(b,a) + weight D(b,a)), bits; -L under a limit at every step, whose channels are masked
    transition    y ~ p(y),  b' = (m(.,y)/p(y)) P
    info          released (y), leakage (bits), distortion, channel

An episode never terminates; it is truncated after `steps`. Sampling y from the output law p needs no true state: given
the releases so far, the belief is all there is.

    import gymnasium, veilstream as vs
    problem = vs.builtin_problem("grid4x4-q2", vs.Average(weight=1.0))
    env = gymnasium.make("veilstream/BeliefRelease-v0", problem=problem)
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.model.chain import draw
from veilstream.model.information import Array, normalised
from veilstream.model.problem import Average, Problem, expected_distortion, leakage, next_prior, output_law

NAME = "veilstream/BeliefRelease-v0"
SPAN = 10.0  # bits
Single = NDArray[np.floating[Any]]  # what crosses the interface is in single precision


def weight_of(problem: Problem) -> float:
    """The problem's weight; 0 where only a limit at every step is asked for."""
    if problem.chain.phases > 1:
        raise InputError("the environment cannot look at a clock; fit with `cycle='none'`")
    match problem.average:
        case None:
            return 0.0
        case Average(weight=float(weight)):
            return weight
    raise InputError(f"the environment needs a weight, found {problem.average}; use Average(weight=...)")


def channel_of(action: Single, cost: Array, span: float = SPAN) -> Array:
    """a(y|z) = 2^(span action(z,y) - cost(z,y)) / N(z), exactly 0 where the cost is infinite.

    The zero action is the memoryless channel 2^-cost; an action of all ones in one column pulls towards that release
    by `span` bits.
    """
    logits = span * np.clip(action, -1, 1).reshape(cost.shape) - cost
    a = np.exp2(logits - logits.max(-1, keepdims=True))
    return normalised(a)


def action_of(channel: Array, cost: Array, span: float = SPAN) -> Single:
    """An action whose channel is `channel`, as far as the box reaches: the inverse of `channel_of`."""
    allowed = np.isfinite(cost)
    bits = np.where(allowed, np.log2(np.maximum(channel, 1e-300)) + np.where(allowed, cost, 0), np.nan)
    bits -= (np.nanmax(bits, -1, keepdims=True) + np.nanmin(bits, -1, keepdims=True)) / 2
    return np.clip(np.nan_to_num(bits) / span, -1, 1).astype(np.float32).ravel()


class BeliefRelease(gymnasium.Env[Single, Single]):
    """One stream; see the module's docstring."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, problem: Problem, steps: int = 300, span: float = SPAN) -> None:
        if not isinstance(problem, Problem):
            raise InputError(f"problem must be a veilstream.Problem, found {type(problem).__name__}")
        if int(steps) != steps or steps < 1:
            raise InputError(f"steps must be a whole number >= 1, found {steps}")
        if not np.isfinite(span) or span <= 0:
            raise InputError(f"span must be a finite number of bits > 0, found {span}")
        self.problem, self.steps, self.span = problem, int(steps), float(span)
        self.weight = weight_of(problem)
        self.cost = problem.cost(self.weight)
        self.observation_space = gymnasium.spaces.Box(0, 1, (problem.n_states,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (self.cost.size,), np.float32)
        self.belief = problem.chain.initial
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Single, dict[str, Any]]:
        super().reset(seed=seed)
        self.belief, self.t = self.problem.chain.initial, 0
        return self._observation(), {}

    def step(self, action: Single) -> tuple[Single, float, bool, bool, dict[str, Any]]:
        a = channel_of(np.asarray(action, float), self.cost, self.span)
        bits = float(leakage(self.belief, a))
        distortion = float(expected_distortion(self.belief, a, self.problem.distortion))
        y = int(draw(output_law(self.belief, a), np.asarray(self.np_random.random())))
        self.belief = next_prior(self.belief, a, y, self.problem.chain.transition)
        self.t += 1
        info = {"released": y, "leakage": bits, "distortion": distortion, "channel": a}
        return self._observation(), -(bits + self.weight * distortion), False, self.t >= self.steps, info

    def _observation(self) -> Single:
        return self.belief.astype(np.float32)


class BeliefReleases(VectorEnv[Any, Any, Any]):
    """Many streams in one array: `gymnasium.make_vec(NAME, num_envs=64, problem=problem)`. All end together; the step
    after the last one starts them again, whatever its actions."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, problem: Problem, num_envs: int = 1, **options: Any) -> None:
        self.one = BeliefRelease(problem, **options)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = self.one.observation_space, self.one.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.belief, self.t = self._first(), 0

    def _first(self) -> Array:
        return np.tile(self.one.problem.chain.initial, (self.num_envs, 1))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Single, dict[str, Any]]:
        super().reset(seed=seed)
        self.belief, self.t = self._first(), 0
        return self.belief.astype(np.float32), {}

    def step(self, actions: Single) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        one, problem, never = self.one, self.one.problem, np.zeros(self.num_envs, bool)
        if self.t >= one.steps:
            return self.reset()[0], np.zeros(self.num_envs), never, never, {}
        cost = np.broadcast_to(one.cost, (self.num_envs, *one.cost.shape))
        a = channel_of(np.asarray(actions, float), cost, one.span)
        bits, distortion = leakage(self.belief, a), expected_distortion(self.belief, a, problem.distortion)
        y = draw(output_law(self.belief, a), self.np_random.random(self.num_envs))
        self.belief = next_prior(self.belief, a, y, problem.chain.transition)
        self.t += 1
        info = {"released": y, "leakage": bits, "distortion": distortion, "channel": a}
        ended = np.full(self.num_envs, self.t >= one.steps)
        return self.belief.astype(np.float32), -(bits + one.weight * distortion), never, ended, info


if NAME not in gymnasium.registry:
    gymnasium.register(NAME, f"{__name__}:BeliefRelease", vector_entry_point=f"{__name__}:BeliefReleases")
