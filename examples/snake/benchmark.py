"""Steps per second of the old system's loop, on one board: `python benchmark.py [--steps 20000] [--batch-size 32]`.

A step counts when the environment made it; training happens every fourth step, and timing starts with it.
"""

import argparse
import statistics
import time

import torch
from train import REPLAY_EVERY, DQNAgent, SnakeEnv


def steps_per_second(agent: DQNAgent, env: SnakeEnv, steps: int) -> float:
    """Steps really made a second, learning included."""
    state, _ = env.reset(seed=0)
    began = 0.0
    for step in range(steps + agent.batch_size + 1):
        if step == agent.batch_size + 1:
            began = time.perf_counter()
        action = agent.act(state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        agent.remember(state, action, reward, next_state, terminated or truncated)
        if step % REPLAY_EVERY == 0 and len(agent.memory) > agent.batch_size:
            agent.replay()
        state = env.reset()[0] if terminated or truncated else next_state
    return steps / (time.perf_counter() - began)


def main() -> None:
    """Print the median and the spread of some runs."""
    parser = argparse.ArgumentParser(description="Steps per second of the old loop.")
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, help="by default 32 on a CPU and 64 on a GPU, as it was")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    speeds = []
    for seed in range(chosen.repeats):
        env = SnakeEnv(startingBlocks=3, dim=10, distToBorder=3)
        agent = DQNAgent(100, 4, batch_size=chosen.batch_size, seed=seed)
        speeds.append(steps_per_second(agent, env, chosen.steps))
    print(
        f"{statistics.median(speeds):.0f} steps/s ({min(speeds):.0f} to {max(speeds):.0f}), {chosen.steps} steps x"
        f" {chosen.repeats}, batch {agent.batch_size}, {agent.device}, {chosen.threads} thread(s)"
    )


if __name__ == "__main__":
    main()
