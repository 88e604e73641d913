"""The paper's learned adversary: LSTM 200, dropout 0.5, dense 200 ReLU, softmax, cross-entropy, Adam.

    h_k, c_k = LSTM(h_{k-1}, c_{k-1}, y_{t-m-1+k}),  k = 1..m
    q(x_t | window) = softmax(W2 relu(W1 dropout(h_m)))

It knows neither chain nor policy, only examples. Windows are discrete and repeat, so examples are held as counts
N(window, x): the loss is the same, and a batch of windows, drawn by how often they occur, carries all that followed.
"""

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from veilstream.audit.traces import Ints
from veilstream.model.information import Array, normalised
from veilstream.shown import Progress

Params = dict[str, jax.Array]
NOTHING = 1e-12  # weight of a row that only fills up a shape
CHUNK = 4096  # windows predicted at once


def padded(rows: int, doublings: int = 2) -> int:
    """The next power of 4 (of 2, for 1 doubling) from 64 on: equal shapes compile once."""
    return int(64 * 2 ** (doublings * max(0, math.ceil((math.log2(max(rows, 1)) - 6) / doublings))))


@dataclass(frozen=True)
class Lstm:
    """Hyper-parameters; units, dense, dropout as in the paper."""

    units: int = 200
    dense: int = 200
    dropout: float = 0.5
    learning_rate: float = 1e-3
    batch: int = 64
    steps_per_round: int = 25
    max_rounds: int = 80
    patience: int = 10  # rounds without a better held-out loss
    max_seconds: float = math.inf  # processor time of one training; the round it ends in is the last


class State(NamedTuple):
    params: Params
    adam: optax.OptState
    key: jax.Array


class Table(NamedTuple):
    """Windows with what followed them, on the device."""

    windows: jax.Array  # K x m
    follow: jax.Array  # K x X, rows are laws of x given the window
    cumulative: jax.Array  # K, of how often each window occurs

    @classmethod
    def of(cls, windows: Ints, counts: Array, doublings: int = 2) -> "Table":
        more = (0, padded(len(counts), doublings) - len(counts)), (0, 0)
        counts = np.pad(counts, more)
        weight = counts.sum(1)
        follow = counts / np.maximum(weight, NOTHING)[:, None]
        return cls(
            jnp.asarray(np.pad(windows, more), jnp.int32),
            jnp.asarray(follow, jnp.float32),
            jnp.asarray(np.cumsum(weight) / weight.sum()),
        )


def initial(key: jax.Array, n_outputs: int, n_symbols: int, net: Lstm) -> Params:
    """Glorot-uniform weights, zero biases but for the forget gate, which starts open (1)."""
    shapes = {
        "Wx": (n_outputs, 4 * net.units),
        "Wh": (net.units, 4 * net.units),
        "W1": (net.units, net.dense),
        "W2": (net.dense, n_symbols),
    }
    glorot = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(shapes))
    params = {name: glorot(k, shape, jnp.float32) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}
    bias = jnp.zeros(4 * net.units).at[net.units : 2 * net.units].set(1.0)
    return {**params, "b": bias, "b1": jnp.zeros(net.dense), "b2": jnp.zeros(n_symbols)}


def log_law(params: Params, windows: jax.Array, kept: jax.Array) -> jax.Array:
    """log q(x | window) in nats, batch x X; `kept` multiplies the last hidden state (dropout; 1 when it is off)."""

    def seen(y: jax.Array) -> jax.Array:
        return jax.nn.one_hot(y, params["Wx"].shape[0]) @ params["Wx"] + params["b"]

    def cell(gates: jax.Array, c: jax.Array | float) -> tuple[jax.Array, jax.Array]:
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def step(state: tuple[jax.Array, jax.Array], y: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        h, c = state
        return cell(seen(y) + h @ params["Wh"], c), None

    first = cell(seen(windows[:, 0]), 0.0)  # h_0 = c_0 = 0
    (h, _), _ = jax.lax.scan(step, first, windows.T[1:])
    hidden = jax.nn.relu((h * kept) @ params["W1"] + params["b1"])
    return jax.nn.log_softmax(hidden @ params["W2"] + params["b2"], -1)


@partial(jax.jit, static_argnames="net")
def train_round(state: State, table: Table, net: Lstm) -> State:
    """`steps_per_round` steps of Adam, each on a fresh batch."""

    def step(state: State, _: None) -> tuple[State, None]:
        key, k_rows, k_drop = jax.random.split(state.key, 3)
        # collect
        rows = jnp.searchsorted(table.cumulative, jax.random.uniform(k_rows, (net.batch,)))
        keep = jax.random.bernoulli(k_drop, 1 - net.dropout, (net.batch, net.units)) / (1 - net.dropout)
        # loss

        def loss(params: Params) -> jax.Array:
            return -(table.follow[rows] * log_law(params, table.windows[rows], keep)).sum(-1).mean()

        # update
        change, adam = optax.adam(net.learning_rate).update(jax.grad(loss)(state.params), state.adam)
        return State(optax.apply_updates(state.params, change), adam, key), None

    return jax.lax.scan(step, state, None, length=net.steps_per_round)[0]


@jax.jit
def held_out_loss(params: Params, table: Table) -> jax.Array:
    """Cross-entropy in nats over a whole table."""
    weight = jnp.diff(table.cumulative, prepend=0.0)
    return -(weight[:, None] * table.follow * log_law(params, table.windows, jnp.float32(1))).sum()


@jax.jit
def _predict(params: Params, windows: jax.Array) -> jax.Array:
    return log_law(params, windows, jnp.float32(1))


@dataclass(frozen=True, eq=False)
class Trained:
    """A network and how it came about; `history` in nats on the held-out windows, one entry a round."""

    params: Params
    history: list[float]
    stopped: bool = False  # by the clock, not by patience or rounds

    def predict(self, windows: Ints) -> Array:
        """q(x | window), rows x X."""
        found = []
        for at in range(0, len(windows), CHUNK):
            rows = windows[at : at + CHUNK]
            part = np.zeros((min(CHUNK, padded(len(rows))), windows.shape[1]), np.int32)
            part[: len(rows)] = rows
            found.append(np.asarray(_predict(self.params, jnp.asarray(part)), float)[: len(rows)])
        law = np.exp(np.concatenate(found))
        return normalised(law)


def train(
    training: tuple[Ints, Array],
    held_out: tuple[Ints, Array],
    n_outputs: int,
    n_symbols: int,
    net: Lstm | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trained:
    """Early stopping: the parameters of the round with the least loss on `held_out`; both as `Examples.table` gives."""
    net = Lstm() if net is None else net
    compiled = replace(net, max_seconds=math.inf)
    table, check = Table.of(*training), Table.of(*held_out, doublings=1)  # read whole every round
    k_init, k_run = jax.random.split(jax.random.key(seed))
    params = initial(k_init, n_outputs, n_symbols, net)
    state = State(params, optax.adam(net.learning_rate).init(params), k_run)
    began, stopped = time.process_time(), False
    best, least, history = params, float("inf"), list[float]()
    for i in range(net.max_rounds):
        state = train_round(state, table, compiled)
        loss = float(held_out_loss(state.params, check))
        history.append(loss)
        if loss < least:
            best, least = state.params, loss
        if progress:
            progress((i + 1) / net.max_rounds, "")
        if len(history) - 1 - int(np.argmin(history)) >= net.patience:
            break
        stopped = time.process_time() - began > net.max_seconds and i + 1 < net.max_rounds
        if stopped:
            break
    return Trained(best, history, stopped)
