"""Steps per second of Stable-Baselines3's A2C on `veilstream/BeliefRelease-v0`: run by the Python that has it.

python -m benchmarks.sb3_steps --width 64 --envs 64 --horizon 16 --steps 20000     prints one JSON object
"""

import argparse
import json
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("width", 64), ("envs", 64), ("horizon", 16), ("steps", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--chain", default="grid4x4-q2")
    asked = parser.parse_args()

    import torch
    from stable_baselines3 import A2C
    from stable_baselines3.common.vec_env import DummyVecEnv

    import veilstream as vs
    from veilstream.deep.env import BeliefRelease

    problem = vs.builtin_problem(asked.chain, vs.Average(weight=1.0))
    envs = DummyVecEnv([lambda: BeliefRelease(problem)] * asked.envs)
    net = {"net_arch": [asked.width, asked.width], "activation_fn": torch.nn.LeakyReLU}
    learner = A2C("MlpPolicy", envs, n_steps=asked.horizon, policy_kwargs=net, device="cpu", seed=0)
    learner.learn(asked.horizon * asked.envs)  # warm up
    started = time.perf_counter()
    learner.learn(asked.steps)
    print(json.dumps({"steps_per_s": learner.num_timesteps / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
