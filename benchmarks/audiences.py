"""What each audience learns: a family's fine releases, the public's coarse ones, and whoever sees both.

The synthetic city as it is (distances between places), and the paper's grid as the bad case. Bits per step by an exact
belief along simulated releases, 95 % intervals; the share of steps at which that belief's best guess is the place. *one
draw*: the public's release is made from the family's; *two draws*: each from the truth, as is done today. The public's
own bits are computed, beside the best policy made from the truth with the same error.
"""

import numpy as np

from veilstream.audit.measures import Guess
from veilstream.control.automaton import Automaton, product
from veilstream.control.cascade import joint
from veilstream.control.controller import Controller
from veilstream.control.evaluate import evaluate
from veilstream.data.synthetic import city_chain
from veilstream.data.utility import Utility
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Problem
from veilstream.solvers import solve
from veilstream.solvers.behind import Audience, behind

CASES = [
    ("city", 0.04, 0.3),
    ("city", 0.04, 0.5),
    ("city", 0.04, 1.0),
    ("city", 0.5, 1.0),
    ("the paper's grid", 0.8, 1.2),
]
STEPS, STREAMS = 300, 256
Row = dict[str, float | str]
WHO = "error of the family, of the public"
TABLE = {
    "public, bits": "{public:.4f}",
    "best from the truth": "{truth:.4f}",
    "pays": "{pays:+.1f} %",
    "family alone": "{family:.4f} ± {family_se:.4f}",
    "both, one draw": "{one:.4f} ± {one_se:.4f}",
    "both, two draws": "{two:.4f} ± {two_se:.4f}",
    "place identified": "{family place:.0f} / {one place:.0f} / {two place:.0f} %",
}


def separate(a: Controller, b: Controller) -> Controller:
    """Both draws from the truth: y1 ~ a(.|z), y2 ~ b(.|z), as one controller."""
    Y1, Y2 = a.n_outputs, b.n_outputs
    y1, y2 = (v.ravel() for v in np.indices((Y1, Y2)))
    A = Automaton(a.automaton.group, a.automaton.to[:, y1])
    B = Automaton(b.automaton.group, b.automaton.to[:, y2])
    memory, both = product(A, B, (a.first, b.first))
    first = int(np.flatnonzero((both == (a.first, b.first)).all(1))[0])
    r = a.output_model[0][both[:, 0]][:, y1] * b.output_model[0][both[:, 1]][:, y2]
    g, h = a.automaton.group[both[:, 0]], b.automaton.group[both[:, 1]]
    K = a.kernel[0][g][:, :, y1] * b.kernel[0][h][:, :, y2]
    return Controller(memory.apart, r[None], K[None], first, chain=a.chain)


def run() -> dict[str, Row]:
    chain, states = city_chain()
    grid = builtin_problem("grid4x4-q2", Average(weight=1.0))
    known = {
        "city": Utility(chain, states.distances(), " km", states.names),
        "the paper's grid": Utility(grid.chain, grid.distortion, "", ()),
    }
    return {
        f"{name}: {fine:g}{known[name].unit}, {coarse:g}{known[name].unit}": row(known[name], fine, coarse)
        for name, fine, coarse in CASES
    }


def row(utility: Utility, finer: float, coarser: float) -> Row:
    chain = utility.chain
    fine, asked = solve(utility.problem(Average(limit=finer)), window=1), utility.problem(Average(limit=coarser))
    coarse = behind(Audience(fine.artefact, asked), window=1)
    own = solve(asked, window=1)
    family, public = fine.policy, coarse.policy
    assert isinstance(family, Controller) and isinstance(public, Controller) and isinstance(own.policy, Controller)
    mechanisms = {"family": family, "one": joint(family, public), "two": separate(family, own.policy)}
    found: Row = {
        "public": coarse.leakage,
        "truth": coarse.behind.direct.leakage,
        "pays": 100 * coarse.behind.pays(coarse.leakage),
    }
    for name, policy in mechanisms.items():
        free = Problem(chain, np.zeros((len(chain), policy.n_outputs)), Average(weight=1.0))
        seen = evaluate(free, policy, STEPS, STREAMS)
        found |= {name: seen.leakage, f"{name}_se": 1.96 * seen.leakage_se}
        found[f"{name} place"] = 100 * Guess.of(chain, policy).right
    return found
