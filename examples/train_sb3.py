"""Train Stable-Baselines3's PPO on the belief MDP and compare it, by the same `evaluate`, with the exact optimum.

Stable-Baselines3 needs torch, which is no dependency of veilstream. In an environment of its own:

    python -m venv sb3 && sb3/bin/pip install torch      # its web site tells how to get the small build without CUDA
    sb3/bin/pip install stable-baselines3 'veilstream[env]'
    sb3/bin/python examples/train_sb3.py --steps 200000
"""

import argparse

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

import veilstream as vs
from veilstream.control.belief import BeliefPolicy
from veilstream.deep.env import channel_of


class Learned:
    """A trained agent as a rule: the belief in, the channel of its mean action out."""

    def __init__(self, agent, cost):
        self.agent, self.cost = agent, cost

    def __call__(self, belief):
        flat = np.atleast_2d(belief).astype(np.float32)
        actions, _ = self.agent.predict(flat, deterministic=True)
        channels = np.stack([channel_of(action, self.cost) for action in actions])
        return channels.reshape(*belief.shape[:-1], *self.cost.shape)

    def export(self):
        raise NotImplementedError("an agent of another library is not saved with a policy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chain", default="grid4x4-q2")
    parser.add_argument("--lambda", dest="weight", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=200_000)
    asked = parser.parse_args()

    # 1. the problem, and its environment by name
    problem = vs.builtin_problem(asked.chain, vs.Average(weight=asked.weight))
    make = lambda: gymnasium.make("veilstream/BeliefRelease-v0", problem=problem)  # noqa: E731
    agent = PPO("MlpPolicy", DummyVecEnv([make] * 16), n_steps=64, batch_size=256, gamma=0.95, device="cpu", seed=0)
    agent.policy.log_std.data.fill_(-2.0)  # the zero action is a fair start: explore near it

    # 2. train
    cost = problem.cost(asked.weight)
    policy = BeliefPolicy(problem.chain, Learned(agent, cost))
    before = vs.evaluate(problem, policy, steps=60, streams=64)
    agent.learn(asked.steps)

    # 3. compare, by exact belief
    after = vs.evaluate(problem, policy, steps=60, streams=64)
    best = vs.solve(problem)
    for name, it in (("untrained", before), ("trained", after), ("causal-ba", best)):
        objective = it.leakage + asked.weight * it.distortion
        print(f"{name:10} leakage {it.leakage:.3f} bits  distortion {it.distortion:.3f}  objective {objective:.3f}")


if __name__ == "__main__":
    main()
