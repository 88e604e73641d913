"""What every item of the paper has and gives."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from reproduce import cache
from veilstream.solvers.solution import Progress


@dataclass(frozen=True)
class Budget:
    """How much work; `full` is the paper's."""

    certify_s: float = 3.0  # seconds of certificate a point
    streams: int = 256  # roll-outs of an estimate
    steps: int = 300
    a2c_updates: int = 150  # of A2C, of 256 streams each
    sticky_updates: int = 500  # of A2C on recorded data, where more of a release matters later
    a2c_runs: int = 3  # its seeds
    paper_steps: int = 300_000  # of Algorithm 1 as published, an update each; the paper's: 1,500,000
    paper_long: int = 1_500_000  # where convergence is drawn, one seed of each form: 5,000 iterations of 300 steps
    paper_width: int = 64  # the paper's: 3000, which takes 0.2 s an update here, 3 days and more a point
    segments: int = 20  # points of a learning curve, and checkpoints: what a cut can lose
    everywhere: bool = False  # A2C as published at every point
    lstm_rounds: int = 60  # of the adversary scored on what it learned from: no privacy then gives the paper's figures
    lstm_s: float = 20.0  # seconds of processor time of one training of the adversary, at most
    lstm_seeds: int = 3
    lstm_copies: int = 20  # releases of every trace
    seed: int = 0

    @classmethod
    def full(cls, seed: int = 0) -> Budget:
        return cls(
            60.0,
            streams=5000,
            a2c_updates=1000,
            sticky_updates=1000,
            a2c_runs=5,
            paper_steps=1_500_000,  # 5000 roll-outs of 300 steps
            segments=100,
            everywhere=True,
            lstm_rounds=80,
            lstm_s=300.0,
            lstm_seeds=5,
            seed=seed,
        )


PUBLISHED, BETTER, OPTIMUM = "the system as published", "the same with a better learner", "the optimum"
YES, PART, NO, NOT_RUN = "yes", "in part", "no", "not run"


@dataclass(frozen=True)
class Finding:
    """One line of the index."""

    ours: str
    agrees: str  # yes, in part, no
    why: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)  # whether what the paper states holds of each by itself
    ran: str = ""  # methods, at how many points, with what budget
    table: list[list[str]] = field(default_factory=list)  # for the page, its heads first

    @classmethod
    def judged(
        cls,
        ours: str,
        why: str,
        published: str = NOT_RUN,
        better: str = NOT_RUN,
        optimum: str = NOT_RUN,
        ran: str = "",
    ) -> Finding:
        """With a verdict for each; together they are never more than was run as published."""
        together = published
        if published not in (YES, PART, NO):  # the paper's method was not run, or not at enough points
            others = [v for v in (optimum, better) if v in (YES, PART, NO)]
            together = PART if others and others[0] == YES else others[0] if others else NOT_RUN
        return cls(ours, together, why, {PUBLISHED: published, BETTER: better, OPTIMUM: optimum}, ran)


def too_few(there: int, of: int) -> str:
    """The verdict on a method that was not run at every point the statement is about."""
    return NOT_RUN if not there else f"not judged: run at {there} of {of} points"


@dataclass(frozen=True)
class Item:
    """One figure or table. `make` writes its files through the desk and says what was found."""

    name: str
    title: str
    paper: str  # what the paper states, in our words
    make: Callable[[Desk], Finding] = field(repr=False)
    needs_geolife: bool = False
    needs_meters: bool = False
    beyond: bool = False  # not in the paper: `paper` is the question asked, `agrees` its answer
    needs: str | None = None  # a library of an extra, without which it is skipped
    after: tuple[str, ...] = ()  # items whose points it shares: side by side with them it would make them again


@dataclass(frozen=True)
class Desk:
    """Where an item works: its folder, its budget, the data if there is any."""

    name: str
    folder: Path
    budget: Budget
    geolife: Path | None = None
    progress: Progress | None = None
    meters: Path | None = None

    def kept(self, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """The figures of this key, from an earlier run where it got so far; JSON."""
        return cache.kept(self.folder, key, compute)

    def place(self, key: dict[str, Any], ending: str) -> Path:
        """A file of its own beside the figures of this key."""
        return cache.place(self.folder, key, ending)

    def tell(self, done: float, what: str) -> None:
        if self.progress:
            self.progress(done, f"{self.name}: {what}")

    def figure(self, figure: Figure) -> None:
        """As PNG and SVG."""
        from veilstream.apps.report.plots import save_figure

        for ending in ("png", "svg"):
            save_figure(figure, self.folder / f"{self.name}.{ending}")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """As CSV, numbers with six digits."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
        cache.write(self.folder / f"{self.name}.csv", out.getvalue())


def as_json(finding: Finding, settings: dict[str, Any], cpu_s: float) -> str:
    told = {"settings": settings, **asdict(finding), "cpu_s": round(cpu_s, 1)}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Ran:
    """An item after the run; `finding` is None where it was skipped, and `state` says why."""

    item: Item
    state: str  # made, kept, or why it was skipped
    finding: Finding | None
    cpu_s: float | None = None  # processor time it took when it was made; less where points were there already
