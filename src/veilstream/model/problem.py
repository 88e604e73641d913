"""The privacy problem, and the one Bayes step everything runs on.

With prior b(z) = P(Z_t = z | y^{t-1}) and channel a(y|z):

    joint        m(z,y) = b(z) a(y|z),   output law p(y) = sum_z m(z,y)
    leakage      L(b,a) = sum m log2 a/p           (bits)
    distortion   D(b,a) = sum m d
    posterior    P(z | y^t) = m(z,y)/p(y)
    next prior   b'(z') = sum_z m(z,y)/p(y) P(z,z')

All of these take leading batch axes. Nothing else in the package writes these formulas again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.errors import ImpossibleObservation, Infeasible, InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, dot, entropy, xlog2

# --- the Bayes step --------------------------------------------------------------------------------------


def joint(b: Array, a: Array) -> Array:
    """m(z,y) = b(z) a(y|z)."""
    return b[..., :, None] * a


def output_law(b: Array, a: Array) -> Array:
    """p(y) = sum_z b(z) a(y|z)."""
    p: Array = np.matmul(b[..., None, :], a)[..., 0, :]
    return p


def leakage(b: Array, a: Array) -> Array:
    """L(b,a) = sum m log2 a - sum p log2 p, bits; never below 0."""
    p = output_law(b, a)
    bits: Array = np.maximum(xlog2(joint(b, a), a).sum((-2, -1)) - xlog2(p, p).sum(-1), 0)
    return bits


def expected_distortion(b: Array, a: Array, d: Array) -> Array:
    """D(b,a) = sum m d."""
    mean: Array = np.einsum("...z,...zy,zy->...", b, a, d)
    return mean


def posterior(b: Array, a: Array, y: ArrayLike) -> Array:
    """m(.,y)/p(y). Raises ImpossibleObservation where p(y) = 0: there is no belief to go on with."""
    y = np.asarray(y)
    if a.ndim == 3 and y.ndim == 1:  # streams: the same entries, sooner
        return posterior_of(b, a[np.arange(len(a)), :, y])
    return posterior_of(b, np.take_along_axis(a, y[..., None, None], -1)[..., 0])


def posterior_of(b: Array, a_y: Array, p_y: Array | None = None) -> Array:
    """The same from a(y|.) of the y seen, and p(y) where it is known already."""
    m_y = b * a_y
    p_y = dot(b, a_y)[..., None] if p_y is None else p_y
    if not (p_y > 0).all():
        raise ImpossibleObservation("the release seen has probability zero under the policy and the belief")
    m_y /= p_y
    return m_y


def next_prior(b: Array, a: Array, y: ArrayLike, P: Array) -> Array:
    """b' = m(.,y)/p(y) P."""
    return posterior(b, a, y) @ P


def blahut_arimoto(
    b: Array, cost: Array, r: Array | None = None, tolerance: float = 1e-6, max_iterations: int = 2000
) -> tuple[Array, Array]:
    """The channel that minimises L(b,a) + sum m cost, and its output law: (a, r).

        K = 2^-cost,  N(z) = sum_y r K,  a = r K / N,  c(y) = sum_z b K / N,  r <- r c

    stops when max_y log2 c(y), a bound on the distance to the optimum (Blahut 1972), is under `tolerance` bits.
    `cost` is in bits, infinite where forbidden.
    """
    K = np.exp2(cost.min(-1, keepdims=True) - cost)
    priors = b.reshape(-1, b.shape[-1])
    start = np.full(cost.shape[-1], 1 / cost.shape[-1]) if r is None else r
    r = np.broadcast_to(start, (*b.shape[:-1], cost.shape[-1])).reshape(len(priors), -1).copy()
    live = np.arange(len(priors))  # each prior stops by itself: a channel must not depend on the rest of the batch
    for _ in range(max_iterations):
        c = (priors[live] / (r[live] @ K.T)) @ K
        r[live] = np.maximum(r[live] * c, 1e-300)
        live = live[np.log2(c.max(-1)) >= tolerance]
        if not live.size:
            break
    r = r.reshape(*b.shape[:-1], -1)
    a = r[..., None, :] * K
    return a / a.sum(-1, keepdims=True), r


def capacity(a: Array, tolerance: float = 1e-6, rounds: int = 2000, least: float = 0.0) -> tuple[Array, Array]:
    """C(a) = max over all laws b of the true state of L(b, a), from above, and the output law q that shows it.

        C <= max_z D(a_z||q)  for any q;        b <- b 2^D(a_z||p) / sum        (Arimoto 1972)

    Whatever the steps have come to is a bound, and the least is kept. least: of every release, in q.
    """
    own, n_y = -entropy(a), a.shape[-1]
    b, bits, law = np.full(a.shape[:-1], 1 / a.shape[-2]), np.full(a.shape[:-2], np.inf), np.zeros(a[..., 0, :].shape)
    for _ in range(rounds):
        p = (1 - least) * output_law(b, a) + least / n_y
        D = own - xlog2(a, p[..., None, :]).sum(-1)  # ... x |Z|
        top = D.max(-1)
        better = top < bits
        bits, law = np.where(better, top, bits), np.where(better[..., None], p, law)
        if (top - dot(b, D)).max() < tolerance:
            break
        b = b * np.exp2(D - top[..., None])
        b /= b.sum(-1, keepdims=True)
    return np.maximum(bits, 0), law / law.sum(-1, keepdims=True)


# --- constraints -----------------------------------------------------------------------------------------


def _checked(value: float, what: str) -> float:
    if not isinstance(value, (int, float, np.number)) or not np.isfinite(value) or value < 0:
        raise InputError(f"{what} must be a finite number >= 0, found {value}")
    return float(value)


class Limit:
    """A constraint, or a part of one."""

    def told(self, unit: str = "") -> str:
        """In words, with the unit of the distortion."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.told()


@dataclass(frozen=True)
class Average(Limit):
    """Either a Lagrange weight (bits per unit of distortion) or a limit on the mean distortion.

    >>> import veilstream as vs
    >>> print(vs.Average(limit=0.5), "|", vs.Average(weight=2.0))
    average <= 0.5 | weight 2 bits/unit
    """

    weight: float | None = None
    limit: float | None = None

    def __post_init__(self) -> None:
        if (self.weight is None) == (self.limit is None):
            raise InputError("an average constraint needs either a weight or a limit, and not both")
        if self.weight is not None:
            object.__setattr__(self, "weight", _checked(self.weight, "weight (lambda)"))
        if self.limit is not None:
            object.__setattr__(self, "limit", _checked(self.limit, "average limit"))

    def told(self, unit: str = "") -> str:
        if self.weight is not None:
            return f"weight {self.weight:g} bits/{unit or 'unit'}"
        return f"average <= {self.limit:g} {unit}".rstrip()


MANY = 8  # limits that are not told one by one


@dataclass(frozen=True)
class Instantaneous(Limit):
    """Distortion at most `limit` at every step; one number, or one per true symbol.

    >>> import veilstream as vs
    >>> print(vs.Instantaneous(2), "|", vs.Instantaneous([5, 0.5]))
    at every step <= 2 | at every step <= 5, 0.5
    """

    limit: float | Sequence[float]

    def __post_init__(self) -> None:
        limits = np.atleast_1d(np.asarray(self.limit, dtype=float))
        if np.isnan(limits).any() or (limits < 0).any():
            raise InputError(f"instantaneous limits must be numbers >= 0, found {limits.min():g}")
        object.__setattr__(self, "limit", float(limits[0]) if np.ndim(self.limit) == 0 else tuple(limits.tolist()))

    def told(self, unit: str = "") -> str:
        limits = self.limit if isinstance(self.limit, tuple) else (self.limit,)
        if len(limits) > MANY:  # of a person's states: how many have each
            each = [f"{v:g} {unit}".rstrip() + f" ({limits.count(v)})" for v in dict.fromkeys(limits)]
            return f"at every step <= {', '.join(each)} of {len(limits)} states"
        return f"at every step <= {', '.join(f'{v:g}' for v in limits)} {unit}".rstrip()


@dataclass(frozen=True)
class Budget(Limit):
    """Leakage at most `bits` per step; the distortion is minimised.

    >>> import veilstream as vs
    >>> solution = vs.solve(vs.builtin_problem("binary", vs.Budget(bits=0.1)))
    >>> solution.leakage <= 0.1 + 1e-6
    True
    """

    bits: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", _checked(self.bits, "budget (bits per step)"))

    def told(self, unit: str = "") -> str:
        return f"leakage <= {self.bits:g} bits per step"


@dataclass(frozen=True)
class Both(Limit):
    """An average constraint and a limit at every step, together.

    >>> import veilstream as vs
    >>> print(vs.Both(vs.Average(limit=0.5), vs.Instantaneous(2)))
    average <= 0.5, at every step <= 2
    """

    average: Average | Budget
    instantaneous: Instantaneous

    def told(self, unit: str = "") -> str:
        return f"{self.average.told(unit)}, {self.instantaneous.told(unit)}"


Constraint = Average | Instantaneous | Budget | Both


def parts(constraint: Constraint) -> tuple[Average | Instantaneous | Budget, ...]:
    """The limits that a constraint is made of."""
    return (constraint.average, constraint.instantaneous) if isinstance(constraint, Both) else (constraint,)


# --- the problem -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """A chain on Z, a distortion Z x Y (or true symbol x Y for a lifted chain), and a constraint.

    worst: the distances that a limit at every step is about, where these are not the distortion: the farthest reading
    of a state, say, where the distortion is the mean over its readings.
    forbidden: confusions that must never happen, whatever the constraint; an infinite distortion says the same.

        >>> import numpy as np, veilstream as vs
        >>> chain = vs.MarkovChain([[0.9, 0.1], [0.2, 0.8]])
        >>> problem = vs.Problem(chain, 1 - np.eye(2), vs.Average(limit=0.1))
        >>> vs.solve(problem).distortion <= 0.1 + 1e-6
        True
    """

    chain: MarkovChain
    distortion: Array
    constraint: Constraint
    worst: Array | None = None
    forbidden: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.constraint, Average | Instantaneous | Budget | Both):
            raise InputError(
                f"constraint must be Average, Instantaneous, Budget or Both, found {type(self.constraint).__name__}"
            )
        d = np.array(self.distortion, dtype=float)
        never = (d == np.inf) if self.forbidden is None else np.asarray(self.forbidden, bool) | (d == np.inf)
        dearest = d[np.isfinite(d)].max(initial=0.0)  # no policy pays it
        object.__setattr__(self, "distortion", self._matrix(np.where(d == np.inf, dearest, d), "distortion"))
        if never.shape not in (d.shape, self.distortion.shape):
            raise InputError(f"forbidden confusions {never.shape} do not fit a distortion {self.distortion.shape}")
        never = never if len(never) == len(self.distortion) else never[self.chain.symbols]
        object.__setattr__(self, "forbidden", never if never.any() else None)
        if self.worst is not None:
            object.__setattr__(self, "worst", self._matrix(self.worst, "worst distance"))
            if self.worst.shape != self.distortion.shape:
                raise InputError(f"worst distances {self.worst.shape} do not fit a distortion {self.distortion.shape}")
        if self.forbidden is not None and self.forbidden.all(1).any():
            x = self.chain.symbols[self.forbidden.all(1).argmax()]
            raise InputError(f"state {x} may show nothing: every release is forbidden for it")
        unserved = np.flatnonzero(~self.allowed.any(1))
        if unserved.size:
            least = self._limited[unserved].min(1)
            raise Infeasible(
                f"infeasible limit: state {self.chain.symbols[unserved[0]]} has no release within it "
                f"(its nearest is at {least[0]:g})",
                f"raise the limit to at least {least.max():.4g}",
            )

    def _matrix(self, values: Array, what: str) -> Array:
        d = np.array(values, dtype=float)
        if d.ndim != 2 or d.shape[1] == 0:
            raise InputError(f"{what} must be a matrix, true x released symbols, found shape {d.shape}")
        if not np.isfinite(d).all() or (d < 0).any():
            raise InputError(f"{what} has an entry that is not a finite number >= 0")
        if len(d) == self.chain.n_symbols != len(self.chain):
            d = d[self.chain.symbols]
        if len(d) != len(self.chain):
            raise InputError(f"{what} has {len(d)} rows; the chain has {len(self.chain)} states")
        return d

    @property
    def _limited(self) -> Array:
        """What a limit at every step is about."""
        return self.distortion if self.worst is None else self.worst

    @property
    def n_states(self) -> int:
        return len(self.distortion)

    @property
    def n_outputs(self) -> int:
        return int(self.distortion.shape[1])

    @property
    def average(self) -> Average | Budget | None:
        """The part of the constraint that is met by choosing a weight, if any."""
        if isinstance(self.constraint, Both):
            return self.constraint.average
        return None if isinstance(self.constraint, Instantaneous) else self.constraint

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Which y each z may show: all that is not forbidden, and within the limit at every step if there is one."""
        free = np.ones(self.distortion.shape, dtype=bool) if self.forbidden is None else ~self.forbidden
        limit = self.every_step
        return free if limit is None else np.asarray(free & (self._limited <= limit[:, None] * (1 + 1e-12)))

    @property
    def every_step(self) -> Array | None:
        """The limit at every step, one for each z; None: there is none."""
        limits = [c.limit for c in parts(self.constraint) if isinstance(c, Instantaneous)]
        if not limits:
            return None
        limit, n = np.asarray(limits[0], dtype=float), self.chain.n_symbols
        if limit.ndim and len(limit) not in (n, len(self.chain)):
            raise InputError(
                f"{len(limit)} instantaneous limits given; one number or one per true symbol ({n}) is needed"
            )
        return limit[self.chain.symbols] if limit.ndim and len(limit) == n else np.broadcast_to(limit, len(self.chain))

    @property
    def open(self) -> NDArray[np.bool_]:
        """Releases that are forbidden to no state: all that may be shown without looking."""
        return np.ones(self.n_outputs, bool) if self.forbidden is None else np.asarray(~self.forbidden.any(0))

    def only(self, releases: NDArray[np.bool_], average: bool = True) -> "Problem":
        """The same problem where each state may show these releases alone; without its average part if so asked."""
        limit, kept = Instantaneous(0.0), self.average if average else None
        return Problem(
            self.chain,
            self.distortion,
            limit if kept is None else Both(kept, limit),
            np.where(releases, 0.0, 1.0),
            self.forbidden,
        )

    def under(self, constraint: Constraint) -> "Problem":
        """The same chain and distances under another constraint."""
        return Problem(self.chain, self.distortion, constraint, self.worst, self.forbidden)

    def cost(self, weight: ArrayLike) -> Array:
        """weight * d in bits, infinite where a release is forbidden; a leading axis for every axis of `weight`."""
        weight = np.asarray(weight, dtype=float)[..., None, None]
        return np.where(self.allowed, weight * self.distortion, np.inf)


def fingerprint(problem: Problem, weight: float) -> str:
    """A hash of everything a solver sees of a problem at one weight."""
    digest = hashlib.sha256(repr((problem.distortion.shape, float(weight))).encode())
    for v in (problem.chain.transition, problem.chain.initial, problem.distortion, problem.allowed):
        digest.update(np.ascontiguousarray(v).tobytes())
    return digest.hexdigest()
