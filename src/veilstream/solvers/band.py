"""Causal Blahut-Arimoto under local differential privacy: no release is e^epsilon times likelier for one state than
for another.

    l_s(y) <= a_s(y|z) <= e^epsilon l_s(y)        for every memory s, release y and state z

For a given output model and what follows, F in nats, the best such rows solve a convex problem. With a multiplier
theta(s,z) for the sum of each row it falls apart into the releases:

    w_s(z,y) = log r(y|s) - F_s(z,y) + theta(s,z)
    a_s(y|z) = e^w, no less than l and no more than e^epsilon l
    log l    : sum_z mu(z|s) [ (log l - w)+ - e^epsilon (w - epsilon - log l)+ ] = 0         increasing in log l
    theta   <- theta - log sum_y a_s(y|z)                                                    dual ascent

Raising every theta raises all rows alike, and each by no more than that: the ascent does not overshoot. Without a limit
nothing is cut and one step is exact. This goes on inside the sweeps of `sweep`, whose potential, law and output model
come from rows that are cut to the band and sum to 1: so epsilon is kept wherever the sweeps had come to. Sticky chains
set the rest: with the law mu(z|s) alone, bands of states that are hardly ever there jump, and the potential with them
(the city at epsilon 2 and above 1 bit/km did not settle), so it is mixed with a little of the uniform law.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from veilstream.control.controller import Controller
from veilstream.control.stationary import LongRun, Rates
from veilstream.model.information import Array, Index, normalised
from veilstream.solvers.sweep import UNSEEN, Sweep, Tables, floored, gains, mixture

NATS = float(np.log(2))  # in a bit
INNER, HALF = 20, 0.5  # steps of the ascent in a sweep; of the way, in potential and law: both follow the band
SPREAD, RARE = 1e-3, 3e-3  # of the uniform law: in output models to begin with; and in mu(z|s), for states hardly there
STEPS = 200  # of Newton's method, most of which it does not need
ENOUGH, CLOSE = 1e-3, 1e-13  # of the sum of a row to 1: in the ascent, and of what is returned


@dataclass
class Banded(Tables):
    theta: Array  # multipliers of the rows, B x F x S x Z


class BandSweep(Sweep):
    """The recursion with a band for each memory and release. Arrays are S x Y x Z: for chains that are not large."""

    epsilon: float  # nats; set where it is made

    def begin(self, t: Tables) -> Banded:
        """From where sweeps without a band have led."""
        r = floored((1 - SPREAD) * t.r + SPREAD / t.r.shape[-1])
        return Banded(r, t.alpha, t.mu, np.zeros_like(t.mu))

    def _wanted(self, t: Banded, f: int, alpha: list[Array], index: Index) -> tuple[Array, ...]:
        """F in nats, w, log l and theta at a phase: B x S x Y x Z, one axis 1 where it is not needed."""
        after = self._ahead(f, alpha) @ self.moves[f].T
        F = NATS * (self.cost[index][:, None] + after[:, self.automaton.table])
        mu, free = t.mu[:, f], np.log(t.r[:, f])[..., None] - F
        seen, n = mu.sum(-1, keepdims=True), mu.shape[-1]
        law = np.divide(mu, seen, out=np.full_like(mu, 1 / n), where=seen > UNSEEN)
        b = ((1 - RARE) * law + RARE / n)[:, :, None]
        free -= np.logaddexp.reduce(free, 2, keepdims=True)  # the rows without a limit
        theta = t.theta[:, f][:, :, None]
        for _ in range(INNER):
            band = lowest(free + theta, b, self.epsilon)[..., None]
            over = summed(np.clip(free + theta, band, band + self.epsilon))
            theta = theta - over
            if np.abs(over).max() < ENOUGH:
                break
        return F, free + theta, band, theta

    def __call__(self, t: Tables, index: Index, rounds: int = 0) -> tuple[Tables, Array, Array]:
        assert isinstance(t, Banded)
        phases, apart, lazy = range(len(self.moves)), self.automaton.apart, HALF
        r, alpha, mu, theta = ([x[:, f] for f in phases] for x in vars(t).values())
        rows: dict[int, Array] = {}
        value, slack = np.zeros((2, len(t)))
        for f in reversed(phases):
            F, w, band, moved = self._wanted(t, f, alpha, index)
            theta[f], a = moved[:, :, 0], filled(w, band, self.epsilon)
            change = (xlogy(a, a / r[f][..., None]) + a * F).sum(2) / NATS - alpha[f]
            gained, m, seen = mu[f] * change, a * mu[f][:, :, None], mu[f].sum(-1, keepdims=True)
            value += self.share[f] * gained.sum((1, 2), dtype=float)
            c = np.divide(m.sum(-1), seen * r[f], out=np.ones_like(r[f]), where=seen > UNSEEN)
            slack += self.share[f] * (seen[..., 0] * np.log2(np.maximum(c.max(-1), 1))).sum(1)
            r[f], rows[f] = floored(r[f] * c), m
            if self.look_ahead:
                gain = gains(mu[f].sum(1), gained.sum(1), self.absorption)
                alpha[f] = alpha[f] + lazy * (change - gain[:, None])
        for f in phases:
            arrived = [(weight, apart.arrive(rows[j]) @ self.moves[j]) for j, weight in self.precedes[f]]
            law = mu[f] + lazy * (mixture(arrived) - mu[f])
            mu[f] = law / law.sum((1, 2), keepdims=True)
        return Banded(*(np.stack(x, 1) for x in (r, alpha, mu, theta))), value, slack

    def result(self, t: Tables, i: int) -> tuple[Controller, Rates]:
        one, chain = t.take(np.array([i])), self.problem.chain
        assert isinstance(one, Banded)
        alpha, at = list(one.alpha.swapaxes(0, 1)), np.array([i])
        found = [self._wanted(one, f, alpha, at) for f in range(len(self.moves))]
        a = np.stack([filled(w, band, self.epsilon)[0] for _, w, band, _ in found])  # F x S x Y x Z
        r = normalised((a * one.mu[0][:, :, None]).sum(-1) + UNSEEN)
        first = int(one.mu[0].mean(0).sum(-1).argmax())
        kernel = (a / r[..., None]).swapaxes(-1, -2)
        policy = Controller(self.automaton.apart, r, kernel, first, window=self.window, chain=chain)
        guess = one.mu[0, chain.around[0]].astype(float)
        return policy, LongRun(chain, policy, guess / guess.sum()).rates(self.problem.distortion)


def lowest(w: Array, b: Array, epsilon: float) -> Array:
    """log l: where e^-epsilon sum_z b (log l - w)+ is sum_z b (w - epsilon - log l)+, without the last axis.

    Their difference is a broken line that rises with log l: its corners are sorted, and where it crosses 0 is read off.
    """
    b = np.broadcast_to(b, w.shape)
    corners, bends = np.concatenate([w - epsilon, w], -1), np.concatenate([-b, np.exp(-epsilon) * b], -1)
    order = np.argsort(corners, -1)
    corners = np.take_along_axis(corners, order, -1)
    slope = b.sum(-1, keepdims=True) + np.cumsum(np.take_along_axis(bends, order, -1), -1)[..., :-1]
    first = (b * (corners[..., :1] - w + epsilon)).sum(-1, keepdims=True)
    height = np.concatenate([first, first + np.cumsum(slope * np.diff(corners), -1)], -1)
    k = (height < 0).sum(-1, keepdims=True).clip(1, height.shape[-1] - 1)  # the line crosses just before this corner
    corner, under, rise = (np.take_along_axis(x, k - 1, -1) for x in (corners, height, slope))
    gap = np.divide(-under, rise, out=np.zeros_like(under), where=rise > 0)
    return np.asarray(np.clip(corner + gap, corner, np.take_along_axis(corners, k, -1)))[..., 0]


def summed(w: Array) -> Array:
    """log of the sum of e^w over releases; one axis 1."""
    top = w.max(-2, keepdims=True)
    return np.asarray(top + np.log(np.exp(w - top).sum(-2, keepdims=True)))


def filled(w: Array, band: Array, epsilon: float) -> Array:
    """Rows e^w within the band that sum to 1, each w moved by what that takes; ... x S x Y x Z."""
    total = summed(band)
    band = band - np.maximum(total, 0) + np.maximum(-epsilon - total, 0)  # which some rows can fill
    low, high = (band - w).min(-2, keepdims=True), (band + epsilon - w).max(-2, keepdims=True)
    move = np.clip(0.0, low, high)
    for _ in range(STEPS):
        v = w + move
        a = np.exp(np.clip(v, band, band + epsilon))
        over = a.sum(-2, keepdims=True) - 1
        if np.abs(over).max() < CLOSE:
            break
        low, high = np.where(over < 0, move, low), np.where(over > 0, move, high)
        slope = np.where((v > band) & (v < band + epsilon), a, 0).sum(-2, keepdims=True)
        to = move - np.divide(over, slope, out=np.zeros_like(over), where=slope > UNSEEN)
        move = np.where((to > low) & (to < high), to, (low + high) / 2)  # half of the way where Newton leaves it
    return np.asarray(a / a.sum(-2, keepdims=True))
