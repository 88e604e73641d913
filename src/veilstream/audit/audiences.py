"""What each audience of a cascade learns, and what all of them learn together: from one draw, or from a draw for each.

Whoever sees the releases w (of one audience or of several), and knows chain and policies, learns in a step

    log2 P(w_t | x^t, w^{t-1}) / p(w_t | w^{t-1})

bits of the true states, in the mean no fewer than I(X;W) whatever the law of the states (`universal_bound`), and just
these where they are drawn from the chain. Both laws are filters: for the finest audience, and for several together, on
the true state; for a coarser audience alone on (memory of the finer one, true state), `control.cascade.BehindFilter`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from veilstream.artefact import Artefact
from veilstream.audit.assemble import MAX_CELLS, Subject
from veilstream.audit.lateness import about_now, latenesses
from veilstream.audit.measures import Measure, measure, per_trace
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.audit.traces import Ints, Traces, release, sampled
from veilstream.audit.verdict import Checked, exceeds, pm
from veilstream.control.accountant import Accountant
from veilstream.control.cascade import Behind, BehindFilter, Finer
from veilstream.control.controller import Controller
from veilstream.control.limit_check import LimitCheck, limits_json
from veilstream.control.loop import Seen, replay
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, entropy
from veilstream.model.interval import Interval, ratio_interval
from veilstream.model.problem import Problem
from veilstream.shown import Progress, Rows, within
from veilstream.solvers.behind import best_from_truth
from veilstream.solvers.solution import Level, Point
from veilstream.solvers.warnings import about_data, limits_of
from veilstream.units import noun, off

ONE, EACH, NOTHING = "all, one draw", "all, a draw for each", "no release"
WORK = 3e10  # products that the filter of a coarser audience may take: half a minute
FEWEST = 20  # streams drawn from the chain


@dataclass(frozen=True)
class Learnt:
    """What one onlooker learns of one body of data."""

    bits: Interval  # per step
    guess: Measure  # of the state at release

    def to_json(self) -> dict[str, Any]:
        return {"leakage": self.bits.to_json(), **self.guess.to_json()}


@dataclass(frozen=True)
class Onlooker:
    """An audience, or all of them together; the figures of the long run are None where nothing computes them."""

    name: str
    error: float | None
    unit: str
    leakage: float | None  # bits per step
    level: str
    startup_bits: float
    learnt: Mapping[str, Learnt]  # chain, traces
    now: Sequence[Interval] = ()  # of an audience: bits about now of releases that are late, in the order of delays

    def to_json(self) -> dict[str, Any]:
        own = {"name": self.name, "distortion": self.error, "unit": self.unit}
        own |= {"leakage": self.leakage, "level": self.level}
        now = {"about_now": [one.to_json() for one in self.now]} if self.now else {}
        return own | now | {name: one.to_json() for name, one in self.learnt.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Audiences(Checked):
    """What an audit of a policy behind another finds: `.rows`, `.words`, `.stands`, `.to_json()`.

    >>> import veilstream as vs
    >>> family = vs.solve("builtin:binary", avg=0.05)
    >>> found = vs.audit(vs.solve("builtin:binary", avg=0.2, behind=family), streams=40, steps=60)
    >>> found
    <Audiences 2 audiences of binary: as computed>
    >>> [row.name for row in found.rows]
    ['audience 1', 'audience 2', 'all, one draw', 'all, a draw for each', 'no release']
    """

    artefact: Artefact  # of the coarsest
    rows: Sequence[Onlooker]
    extra: Mapping[str, Interval]  # bits per step that a draw for each adds to one draw, on each body of data
    sizes: Mapping[str, str]
    delays: Mapping[str, int]  # steps, by what they are called
    data: Recorded
    warnings: tuple[str, ...]
    steps: int  # of a stream drawn from the chain
    seconds: float = 0.0

    @property
    def unit(self) -> str:
        """Of distances between her states."""
        states = self.artefact.person.states
        return "" if states is None else states.unit

    @cached_property
    def limits(self) -> list[LimitCheck]:
        """Of the coarsest audience: whether later data shows them kept."""
        later = self.data.later
        return limits_of(self.artefact, None if later is None else later.figures)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Each audience that learns more on data drawn from the chain than was computed."""
        return tuple(
            f"{row.name} learns {pm(row.learnt['chain'].bits)} bits per step, computed {row.leakage:.4f}"
            for row in self.rows
            if row.leakage is not None
            and exceeds(row.learnt["chain"].bits, row.leakage + row.startup_bits / self.steps)
        )

    @cached_property
    def words(self) -> str:
        """A line for each audience, and one for all of them."""
        where = list(self.sizes)[-1]
        data = "the data given" if where == "traces" else "data drawn from the chain"
        lines = [check.words for check in self.limits]
        lines += [f"THE FIGURES ARE CONTRADICTED: {line}." for line in self.contradictions]
        blind = self.rows[-1].learnt[where].guess.top1
        for row in self.rows:
            if row.error is not None and row.leakage is not None:
                far, finest = off(f"{row.error:.3g}", row.unit), row is self.rows[0]
                most, level = ("", row.level) if finest else ("at most ", f"a bound, {row.level}")
                right = row.learnt[where].guess.top1
                lines.append(
                    f"{row.name.capitalize()} sees releases with {far}, and learns {most}{row.leakage:.4f} "
                    f"bits per step under the fitted chain ({level}); on {data} it identifies the "
                    f"{noun(self.unit)} in {right:.0%} of steps ({blind:.0%} without any release)."
                )
        first, one, each = (row.learnt[where].bits for row in (self.rows[0], *self.rows[-3:-1]))
        more, least = self.extra[where], one.value if one.value > 0 else 1.0
        lines.append(
            f"Any of them together learn what the finest of them learns alone ({Level.PROVED}): on {data} all learn "
            f"{pm(one)} bits per step, the finest alone {pm(first)}. From a draw for each, as accurate, they would "
            f"learn {pm(each)}: {pm(more)} bits more, {round(more.value / least, 3) + 0.0:.1%}."
        )
        return "\n".join(lines)

    def about(self) -> tuple[str, Rows]:
        n = sum(row.error is not None for row in self.rows)
        stands = "as computed" if self.stands else "THE FIGURES ARE CONTRADICTED"
        rows = [("!", line) for line in (*self.contradictions, *self.warnings)]
        return f"{n} audiences of {self.artefact.person.chain.name}: {stands}", [("verdict", self.words), *rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "stands": self.stands,
            "contradictions": list(self.contradictions),
            "warnings": list(self.warnings),
            "verdict": self.words,
            "audiences": [row.to_json() for row in self.rows],
            "delays": dict(self.delays),
            "separate_draws_add": {name: one.to_json() for name, one in self.extra.items()},
            **limits_json(self.limits),
        }


def audit_audiences(
    artefact: Artefact, data: Recorded | None, spec: AuditSpec, progress: Progress | None = None
) -> Audiences:
    """What every audience of a cascade learns, its coarsest policy's file given; data: as the person's model has it."""
    started, data = time.perf_counter(), data or Recorded.nothing(artefact)
    if spec.against:
        raise InputError("`against` compares policies that look at readings; audit the finer policy with it")
    what, tell = Cascade.of(artefact), within(progress, 0, 0.5)
    tell(0.0, "policies of their own")
    own = what.separate()
    person, bodies = Subject.of(artefact.person, data, spec), {}
    streams, steps, copies = spec.sizes
    chain = what.finers[0].chain
    streams = what.fewer(streams, steps, FEWEST)
    bodies["chain"] = sampled(chain, what.policies[0], steps, streams, spec.seed)
    if person.sequences:
        paths = [np.asarray(s, np.int64) for s in person.sequences]
        total = sum(map(len, paths))
        copies = int(np.clip(MAX_CELLS // (total * len(chain)), 1, what.fewer(copies, total)))
        bodies["traces"] = release(what.policies[0], paths, copies, spec.seed + 1, person.first)
    learnt: dict[str, dict[str, Learnt]] = {}
    delays, now = latenesses(artefact.person.recording), {}
    extra, sizes = {}, {}
    for k, (name, traces) in enumerate(bodies.items()):
        start = person.start(name)
        tell = within(progress, 0.5 * (1 + k / len(bodies)), 0.5 * (1 + (k + 1) / len(bodies)))
        density: dict[str, Array] = {}
        for who, belief, bits in onlookers(what, own, traces, spec.seed + 2, tell):
            density[who] = bits
            found = Learnt(
                ratio_interval(*per_trace(bits, traces, traces.mask)),
                measure(belief, traces.z, traces, person.distances, start=start),
            )
            learnt.setdefault(who, {})[name] = found
            if name == "chain":
                now[who] = about_now(chain, belief, traces, list(delays.values()), start)
        extra[name] = ratio_interval(*per_trace(density[EACH] - density[ONE], traces, traces.mask))
        sizes[name] = f"{traces.n_traces:,} traces, {int(traces.lengths.sum()):,} steps released"
    rows = [
        replace(row, learnt=learnt[row.name], now=() if row.error is None else now[row.name]) for row in what.rows()
    ]
    lines = (*data.warnings, *about_data(artefact.person.provenance))
    return Audiences(artefact, rows, extra, sizes, delays, data, lines, steps, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class Cascade:
    """The files of all audiences, the finest first, and what is known of each of their releases."""

    files: Sequence[Artefact]
    finers: Sequence[Finer]  # through the first k + 1 of them, for whoever is behind these

    @classmethod
    def of(cls, artefact: Artefact) -> Cascade:
        files = [artefact]
        while files[0].finer is not None:
            files.insert(0, files[0].finer)
        finers = [Finer.of(files[0].chain, files[0].policies[0])]
        for file in files[1:-1]:
            assert isinstance(file.policy, Controller)
            finers.append(finers[-1].then(file.policy))
        return cls(files, finers)

    @property
    def policies(self) -> list[Policy]:
        return self.files[-1].policies

    def truth(self, k: int) -> Problem:
        """What audience k + 1 is to have, for a policy that looks at the truth."""
        file, chain = self.files[k], self.finers[0].chain
        assert file.problem is not None
        if file.truth is None:
            return file.problem
        return Problem(chain, file.truth, file.problem.constraint)

    def fewer(self, n: int, steps: int, fewest: int = 1) -> int:
        """Streams of so many steps that the filters of coarser audiences can follow, at most n."""
        largest = self.finers[-1]
        each = steps * len(largest.last) * len(largest.chain) * largest.policy.n_outputs
        return int(np.clip(WORK // each, fewest, n))

    @cached_property
    def runs(self) -> list[Behind]:
        """The long run of each coarser audience."""
        pairs = zip(self.finers, self.policies[1:], strict=True)
        return [Behind(finer, coarse) for finer, coarse in pairs if isinstance(coarse, Controller)]

    def rows(self) -> list[Onlooker]:
        """The onlookers with what is computed of them."""
        own, units = Point.of(self.truth(0), self.policies[0]), [file.unit for file in self.files]
        most = float(entropy(self.finers[0].chain.initial))
        once = own.startup_bits or most
        rows = [Onlooker("audience 1", own.distortion, units[0], own.leakage, str(own.level), once, {})]
        for k, run in enumerate(self.runs, 1):
            found, early = run.rates(d := self.truth(k).distortion), run.startup_bits(d)
            once, level = most if early is None else max(early, 0.0), str(Level.COMPUTED)
            rows.append(Onlooker(f"audience {k + 1}", found.distortion, units[k], found.leakage, level, once, {}))
        together = replace(rows[0], name=ONE, error=None, level=str(Level.PROVED))
        none = Onlooker(NOTHING, None, "", 0.0, str(Level.COMPUTED), 0.0, {})
        return [*rows, together, Onlooker(EACH, None, "", None, str(Level.ESTIMATED), 0.0, {}), none]

    def separate(self) -> list[Policy]:
        """For each coarser audience a policy from the truth of the same error, with the memory of a release."""
        return [
            best_from_truth(self.truth(k), run.rates(self.truth(k).distortion).distortion, window=1).policy
            for k, run in enumerate(self.runs, 1)
        ]


def onlookers(
    what: Cascade, own: Sequence[Policy], traces: Traces, seed: int, tell: Progress
) -> Iterator[tuple[str, Array, Array]]:
    """Name, belief about the true state at every release, and bits of every step."""
    rng, chain, policies = np.random.default_rng(seed), what.finers[0].chain, what.policies
    yield NOTHING, *followed(chain, np.ones((*traces.z.shape, len(chain))), traces)
    fine = columns(policies[0], traces)
    yield "audience 1", *followed(chain, fine, traces)
    together, apart, seen = fine.copy(), fine, traces
    for k, (finer, coarse) in enumerate(zip(what.finers, policies[1:], strict=True)):
        tell(k / len(own), f"audience {k + 2} on {traces.n_traces} traces")
        assert isinstance(coarse, Controller)
        before, seen = seen.y, drawn(coarse, replace(seen, z=seen.y), rng)
        c = columns(coarse, seen)
        together *= np.take_along_axis(c, before[..., None], -1)
        yield f"audience {k + 2}", *overheard(finer, coarse, traces.z, seen)
        apart = apart * columns(own[k], drawn(own[k], traces, rng))
    yield ONE, *followed(chain, together, traces)
    yield EACH, *followed(chain, apart, traces)


def drawn(policy: Policy, traces: Traces, rng: np.random.Generator) -> Traces:
    """The same streams as this policy releases them."""
    mechanism = Mechanism(policy, meter=Accountant(), sighted=True)
    y, _ = replay(mechanism, traces.z, uniforms=rng.random, first=traces.first, lengths=traces.lengths)
    return replace(traces, y=y)


def columns(policy: Policy, traces: Traces) -> Array:
    """a_t(y_t|.), streams x steps x what the policy looks at; 1 beyond the end of a stream."""
    found = np.ones((*traces.y.shape, policy.n_states))
    mechanism = Mechanism(policy, meter=Accountant(), sighted=True)

    def observe(seen: Seen) -> None:
        found[seen.rows, seen.t] = mechanism.column(seen.before, seen.view, seen.y)

    replay(mechanism, traces.z, observe, y=traces.y, first=traces.first, lengths=traces.lengths)
    return found


def followed(chain: MarkovChain, likelihood: Array, traces: Traces) -> tuple[Array, Array]:
    """Beliefs of whoever sees what is this likely, and bits of every step."""
    belief, density = np.empty_like(likelihood), np.zeros(traces.z.shape)
    b = chain.initial_at(traces.first)
    for t in range(traces.z.shape[1]):
        post, each = b * likelihood[:, t], np.arange(len(b))
        p = post.sum(-1)
        belief[:, t] = post / p[:, None]
        density[:, t] = np.log2(likelihood[each, t, traces.z[:, t]] / p)
        b = chain.moved(belief[:, t], traces.first + t)
    return belief, density


def overheard(finer: Finer, coarse: Controller, z: Ints, seen: Traces) -> tuple[Array, Array]:
    """The same of whoever sees the coarser releases alone; z: the true states."""
    belief, density = np.full((*z.shape, len(finer.chain)), 1 / len(finer.chain)), np.zeros(z.shape)
    meter, own = BehindFilter(finer), finer.policy
    known = np.zeros((len(z), len(finer.last)))  # P(s1 | x^{t-1}, y2^{t-1})
    known[:, own.first] = 1
    mechanism = Mechanism(coarse, meter=meter)

    def observe(now: Seen) -> None:
        c = mechanism.column(now.before, now.view, now.y)[:, finer.last]  # n x S1'
        joint = meter.shown(now.before) * c[..., None]
        p = joint.sum((1, 2))
        belief[now.rows, now.t] = joint.sum(1) / p[:, None]
        b, states = known[now.rows], z[now.rows, now.t]
        phases = np.broadcast_to(own.phase_at(now.before.step), len(b))
        for f, x in set(zip(phases.tolist(), states.tolist(), strict=True)):
            at = (phases == f) & (states == x)
            b[at] = (b[at] @ finer.moves(f, x)) * c[at]
        given = b.sum(1)
        known[now.rows] = b / given[:, None]
        density[now.rows, now.t] = np.log2(given / p)

    replay(mechanism, seen.z, observe, y=seen.y, first=seen.first, lengths=seen.lengths)
    return belief, density
