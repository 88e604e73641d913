"""What the tests of the paper's items share: a tiny budget, and a `solve` that only counts."""

from dataclasses import replace

from reproduce.item import Budget
from veilstream.solvers import solve

TINY = Budget(certify_s=0.1, streams=16, steps=20, a2c_updates=10, sticky_updates=10, a2c_runs=2, segments=4,
              paper_long=400, paper_steps=400, paper_width=8, lstm_s=0.0, lstm_seeds=2, lstm_copies=2,
              lstm_rounds=2)  # fmt: skip

QUICK = {}


def quick(problem):
    key = problem.chain.name, repr(problem.constraint)
    if key not in QUICK:
        QUICK[key] = solve(problem, "myopic")
    return QUICK[key]


def counted(monkeypatch, module, stop_at=None):
    """A `solve` that only counts (myopic, once for each problem); at the call `stop_at` a key is pressed."""
    calls = []

    def asked(problem, method="causal-ba", **_):
        calls.append((problem.chain.name, repr(problem.constraint), method))
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        return replace(quick(problem), method=method)

    monkeypatch.setattr(module, "solve", asked)
    return calls


def cut_after(monkeypatch, module, segments):
    """Trainings of `module` in which a key is pressed after so many segments; called, it lets them go on and counts."""
    segment, done, again = module.segment, [], []

    def cut(*args):
        if len(done) == segments:
            raise KeyboardInterrupt
        done.append(1)
        return segment(*args)

    def go_on():
        monkeypatch.setattr(module, "segment", lambda *args: again.append(1) or segment(*args))
        return again

    monkeypatch.setattr(module, "segment", cut)
    return go_on
