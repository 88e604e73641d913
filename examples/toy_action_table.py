"""The 2x3 toy of the paper at lambda 3: what is released at its uniform belief, by every belief policy, in both forms.

    python examples/toy_action_table.py [--updates 1000]

The paper's belief is the posterior of x_{t-1}; ours is the prior of the state z_t, so its uniform belief is uniform
times P: on x_t for the form q(y | x_t, history), on the pair (x_t, x_{t-1}) for its own q(y | x_t, x_{t-1}, history).
One symbol less loses nothing, so the rows of the second table need not depend on x_{t-1}.
"""

import argparse

import numpy as np

import veilstream as vs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=1000)
    asked = parser.parse_args()
    short = vs.builtin_problem("grid2x3-toy", vs.Average(weight=3.0))
    pair = vs.Problem(short.chain.lift(2), short.distortion, short.constraint)
    P = short.chain.transition
    histories = pair.chain.histories
    uniform = {
        "x_t": (short, np.full(6, 1 / 6) @ P, [f"({x + 1})" for x in range(6)]),
        "x_t, x_{t-1}": (
            pair,
            np.array([P[old, new] / 6 for new, old in histories]),
            [f"({new + 1},{old + 1})" for new, old in histories],
        ),
    }
    options = {"belief-greedy": {}, "a2c": {"updates": asked.updates}}
    np.set_printoptions(precision=2, suppress=True)
    for form, (problem, belief, names) in uniform.items():
        best = vs.solve(problem)
        print(f"form q(y | {form}, history); optimum {best.objective:.4f} (leakage {best.leakage:.4f})")
        for method, chosen in options.items():
            found = vs.solve(problem, method=method, **chosen)
            spread = 2 * (found.leakage_se + 3 * found.distortion_se)
            print(
                f"  {method}: objective {found.objective:.4f} +- {spread:.4f}, leakage {found.leakage:.4f} bits, "
                f"distortion {found.distortion:.4f}, {found.seconds:.0f} s"
            )
            for name, row in sorted(zip(names, found.policy.channel(belief), strict=True)):
                if form == "x_t" or name[1] in "16":  # the rows the paper prints
                    print("    ", name, row)


if __name__ == "__main__":
    main()
