"""Causal Blahut-Arimoto: the best policy that remembers the last w releases, for many weights at once.

The alternation of `sweep` falls into local minima on sticky chains, so it is run from several starts, some of them
annealed from a larger or a smaller weight, as one batch. All policies found, at every weight, then compete at each
weight: the optimum is concave in the weight, and so is the envelope they span.
"""

from dataclasses import dataclass, replace

import numpy as np

from veilstream.errors import InputError
from veilstream.information import Array, Index
from veilstream.policy import WindowPolicy
from veilstream.problem import Problem
from veilstream.solvers.solution import Point, Progress, Status
from veilstream.solvers.sweep import FLOOR, Sweep, Tables, extrapolate
from veilstream.steady import DENSE_LIMIT, Step, dense_transition, startup_bits, stationary_joint, widen

LOOK_EVERY = 50  # sweeps between looks at convergence
ANNEAL_SWEEPS = 100
NOTHING = 1e-5  # bits: differences of this size times the tolerances count as none
SLACK = 5e-3  # relative: Blahut's bound on what a better output model could still gain
LARGE_TABLE = 20_000  # numbers in one alpha beyond which three starts must do
LARGEST_TABLE = 400_000  # numbers in alpha, over the batch, up to which the window is raised by itself


@dataclass(frozen=True)
class CausalBA:
    """Hyper-parameters; `points` runs it."""

    window: int | None = None  # None: raise it while that gains more than min_gain
    tolerance: float = 1e-5  # relative change of the value between two looks
    max_sweeps: int = 3000
    random_starts: int = 2
    min_gain: float = 1e-3
    look_ahead: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window is not None and (int(self.window) != self.window or self.window < 0):
            raise InputError(f"window must be a whole number >= 0, found {self.window}")
        if self.max_sweeps < 1:
            raise InputError(f"max_sweeps must be at least 1, found {self.max_sweeps}")
        if not self.tolerance > 0:
            raise InputError(f"tolerance must be positive, found {self.tolerance}")

    def points(self, problem: Problem, weights: Array, progress: Progress | None = None) -> list[Point]:
        """The best point found for each weight."""
        weights = np.asarray(weights, dtype=float)
        window = self._first_window(problem)
        starts = starting_models(problem, window, self.random_starts, self.seed)
        if problem.n_states * problem.n_outputs**window > LARGE_TABLE:
            starts = starts[:, :3]
        found = constants(problem, window) + self.run(problem, weights, window, starts, progress)
        best = envelope(found, weights)
        rising = np.arange(len(weights))  # weights at which the last raise of the window paid
        while self.window is None and rising.size and self._fits(problem, window + 1, len(weights)):
            window += 1
            wider = np.stack([widen(best[i].table, window).output_model for i in rising])
            more = self.run(problem, weights[rising], window, wider[:, None], progress)
            better = envelope(found + more, weights)
            gains = np.array([gain(o, b, w) for o, b, w in zip(best, better, weights, strict=True)])
            rising = np.flatnonzero(gains > self.min_gain)
            for i in rising:
                best[i] = better[i]
            found += [best[i] for i in rising]
        return [with_startup(problem, p) for p in best]

    def rough(self, problem: Problem) -> "CausalBA":
        """For a first look around: the least window, the fewest starts."""
        return replace(self, window=self._first_window(problem), random_starts=0)

    def _first_window(self, problem: Problem) -> int:
        return max(1, problem.chain.order) if self.window is None else self.window

    def _fits(self, problem: Problem, window: int, batch: int) -> bool:
        return batch * problem.n_outputs**window * problem.n_states <= LARGEST_TABLE

    def run(
        self, problem: Problem, weights: Array, window: int, starts: Array, progress: Progress | None
    ) -> list[Point]:
        """Every (weight, start) to convergence. starts: |weights| or 1, x starts x S x Y."""
        n_starts = starts.shape[1]
        r = np.broadcast_to(starts, (len(weights), *starts.shape[1:])).reshape(-1, *starts.shape[2:])
        anneal = np.tile(annealing(n_starts), len(weights))
        sweep = Sweep(problem, problem.cost(np.repeat(weights, n_starts)), window, self.look_ahead)
        tables = sweep.start(r.copy())
        group = np.repeat(np.arange(len(weights)), n_starts)
        values, done, kept = self._converge(problem, sweep, tables, anneal, group, progress)
        K = sweep.kernel(tables, np.arange(len(tables)))[0].swapaxes(2, 3)
        r, mu = sweep.by_window(tables.r), sweep.by_window(tables.mu)
        points = []
        for i in np.flatnonzero(kept):
            policy = WindowPolicy(r[i], K[i], window, first=int(mu[i].sum(1).argmax()))
            law = stationary_joint(problem.chain, policy, mu[i])
            rates = Step(problem.chain, policy).rates(law, problem.distortion)
            status = Status.CONVERGED if done[i] else Status.STOPPED
            history = [{"sweep": k, "value": float(v[i])} for k, v in values]
            points.append(Point(policy, rates.leakage, rates.distortion, status=status, history=history))
        return points

    def _converge(
        self, problem: Problem, sweep: Sweep, tables: Tables, anneal: Array, group: Index, progress: Progress | None
    ) -> tuple[list[tuple[int, Array]], Array, Array]:
        """Cycles of sweeps and one extrapolation until value and slack have settled; `tables` change in place.

        Returns the values on the way, which runs settled, and which are worth a look at all.
        """
        live = np.arange(len(tables))
        value, slack = np.full((2, len(tables)), np.inf)
        cap = np.full(len(tables), 4.0)  # on the extrapolation: grows while it helps, shrinks when it hurts
        done, kept = np.zeros(len(tables), dtype=bool), np.ones(len(tables), dtype=bool)
        annealed = ANNEAL_SWEEPS if (anneal != 1).any() else 0
        values, k, next_look, next_settle = [], 0, ANNEAL_SWEEPS, 4 * ANNEAL_SWEEPS
        t = tables.take(live)
        while live.size and k < self.max_sweeps:
            if k < annealed:
                stretch = anneal[live] ** (1 - k / annealed)
                t, _, _ = sweep(t, live, stretch[:, None, None, None])
                k += 1
                continue
            for _ in range(3):
                t, now, left = sweep(t, live)
            helped = left < 1.02 * slack[live]
            cap[live] = np.where(helped, np.minimum(2 * cap[live], 1e3), np.maximum(cap[live] / 4, 1))
            slack[live] = left
            t1 = sweep(t, live)[0]
            t = extrapolate(t, t1, sweep(t1, live)[0], cap[live])
            k += 5
            if k >= next_settle:
                settle(problem, sweep, t, live)
                next_settle *= 2
            if k >= next_look:
                next_look = k + LOOK_EVERY
                scale = np.abs(now) + NOTHING
                settled = (np.abs(now - value[live]) < self.tolerance * scale) & (left < SLACK * scale)
                value[live] = now
                values.append((k, value.copy()))
                tables.put(live, t)
                done[live[settled]] = True
                drop = redundant(tables, value, slack, group, kept)
                kept[drop] = False
                going = ~settled & kept[live]
                live, t = live[going], t.take(np.flatnonzero(going))
                if progress:
                    progress(1 - len(live) / len(tables), f"window {sweep.window}, sweep {k}: {len(live)} runs live")
        if live.size:
            tables.put(live, t)
        return values, done, kept


def redundant(tables: Tables, value: Array, slack: Array, group: Index, kept: Array) -> Index:
    """Runs not worth going on with: another at the same weight has the same output model (to 2 %), or is so much
    better that by Blahut's bound they cannot catch up."""
    drop = []
    for g in np.unique(group):
        runs = np.flatnonzero((group == g) & kept)
        best = runs[value[runs].argmin()]
        seen = tables.mu[best].sum(-1, keepdims=True)
        for i in runs[runs != best]:
            apart = (seen * np.abs(tables.r[i] - tables.r[best])).sum() / 2
            if apart < 0.02 or value[i] - slack[i] > value[best]:
                drop.append(i)
    return np.array(drop, dtype=int)


def starting_models(problem: Problem, window: int, random: int, seed: int) -> Array:
    """Output models r(y|newest) to start from, 1 x starts x S x Y.

    Uniform; what publishing the nearest symbol would show; holding the last release; and random ones. Sticky chains
    are the reason for the second and third: from a uniform model they often end 1-3 % above the best.
    """
    n, chain = problem.n_outputs, problem.chain
    uniform = np.full((n, n), 1 / n)
    nearest = np.eye(n)[np.where(problem.allowed, problem.distortion, np.inf).argmin(1)]  # Z x Y
    flow = nearest.T @ (chain.stationary[:, None] * chain.transition) @ nearest + 1e-12
    truth = 0.95 * flow / flow.sum(1, keepdims=True) + 0.05 * uniform
    hold = 0.95 * np.eye(n) + 0.05 * uniform
    rng = np.random.default_rng(seed)
    others = [0.95 * rng.dirichlet(np.full(n, 0.3), n) + 0.05 * uniform for _ in range(random)]
    models = np.stack([uniform, truth, hold, truth, uniform, *others])
    if window == 0:
        return models.mean(1, keepdims=True)[None]
    return np.tile(models, (1, n ** (window - 1), 1))[None]


def annealing(n_starts: int) -> Array:
    """How much the weight of each start is stretched at first: the fourth comes from above, the fifth from below."""
    factors = np.ones(n_starts)
    factors[3:4], factors[4:5] = 4.0, 0.25
    return factors


def constants(problem: Problem, window: int) -> list[Point]:
    """Always the same symbol, for every symbol that is always allowed: nothing leaks."""
    n, points = problem.n_outputs, []
    for y in np.flatnonzero(problem.allowed.all(0)):
        r = np.full(n, FLOOR)
        r[y] = 1 - FLOOR * (n - 1)
        K = problem.allowed[None].astype(float)
        policy = WindowPolicy(np.tile(r, (n**window, 1)), K, window, first=int(y) if window else 0)
        distortion = float(problem.chain.stationary @ problem.distortion @ r) if K.all() else None
        if distortion is None:
            law = stationary_joint(problem.chain, policy)
            rates = Step(problem.chain, policy).rates(law, problem.distortion)
            points.append(Point(policy, rates.leakage, rates.distortion))
        else:
            points.append(Point(policy, 0.0, distortion))
    return points


def envelope(points: list[Point], weights: Array) -> list[Point]:
    """The best of all points at each weight; of equals, the one with less distortion, then the one found first.

    Without a weight (a limit at every step alone) leakages within one in ten thousand count as equal: the convergence
    tolerance could not tell them apart, and the distortion is worth having.
    """
    leak, dist = np.array([[p.leakage, p.distortion] for p in points]).T
    chosen = []
    for w in weights:
        objective = leak + w * dist
        least = objective.min()
        equal = np.flatnonzero(objective <= least + (1e-12 if w > 0 else 1e-4 * least + 1e-12))
        chosen.append(points[equal[dist[equal].argmin()]])
    return chosen


def gain(old: Point, new: Point, weight: float) -> float:
    """How much lower the objective is, relative."""
    before = old.objective(weight)
    return 1 - new.objective(weight) / before if before > 1e-12 else 0.0


def settle(problem: Problem, sweep: Sweep, t: Tables, index: Index) -> None:
    """Newton's step, where the tables are small: mu and alpha of the present policy, solved for instead of iterated.

        mu T = mu,    (I - T) alpha = T* alpha - T alpha - g        T: transitions under a, T*: the soft minimum

    Chains that mix slowly would otherwise need thousands of sweeps. `t` changes in place.
    """
    S, Z = sweep.O * sweep.Sp, problem.n_states
    if S * Z > DENSE_LIMIT or len(problem.chain.closed_classes) > 1:
        return
    K, low = sweep.kernel(t, index)
    N = t.r @ K
    improved = sweep.by_window(low - np.log2(N)).reshape(len(t), -1)
    old = sweep.by_window(t.alpha).reshape(len(t), -1)
    r = sweep.by_window(t.r)
    mu, alpha = np.empty((2, len(t), S, Z))
    for i in range(len(t)):
        policy = WindowPolicy(r[i], K[i].swapaxes(1, 2), sweep.window)
        T = dense_transition(policy.channel(np.arange(S)), problem.chain.transition)
        mu[i] = stationary_joint(problem.chain, policy)
        one_step = improved[i] - T @ old[i]
        gain = mu[i].ravel() @ one_step
        alpha[i] = np.linalg.solve(np.eye(S * Z) - T + mu[i].ravel(), one_step - gain).reshape(S, Z)
    t.mu = sweep.by_oldest(mu)
    if sweep.look_ahead:
        t.alpha = sweep.by_oldest(alpha)


def with_startup(problem: Problem, point: Point) -> Point:
    return replace(point, startup_bits=startup_bits(problem, point.table, point.leakage))
