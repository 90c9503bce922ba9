"""Trains the older system's agent on the older system's environment: `python train.py --episodes 500`.

`from train import DQNAgent, SnakeEnv` is all that a script of the old system needs.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from agent import DQNAgent
from game import MOVES, SnakeEnv

from app.cli.error_messages import exit_with_error
from datamodules.core.errors import ConfigurationError

__all__ = ["DQNAgent", "SnakeEnv", "evaluate", "train"]

REPLAY_EVERY = 4


class Game(NamedTuple):
    """A finished game: its rewards' sum, the snake's last length, the share of random moves, the last loss."""

    reward: float
    snake_length: int
    epsilon: float
    loss: float


def play(agent: DQNAgent, env: SnakeEnv, *, learn: bool, steps: int = 0, seed: int | None = None) -> tuple[Game, int]:
    """One game, learning every fourth of all steps so far or greedily; the game, and the steps so far."""
    (state, _), total, ended, loss = env.reset(seed=seed), 0.0, False, float("nan")
    while not ended:
        action = agent.act(state, greedy=not learn)
        next_state, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        total, steps = total + reward, steps + 1
        if learn:
            agent.remember(state, action, reward, next_state, ended)
            if steps % REPLAY_EVERY == 0 and len(agent.memory) > agent.batch_size:
                loss = float(agent.replay())
        state = next_state
    return Game(total, info["snake_length"], agent.epsilon, loss), steps


def train(agent: DQNAgent, env: SnakeEnv, episodes: int, seed: int = 0) -> list[Game]:
    """Games that the agent learns from."""
    games, steps = [], 0
    for episode in range(episodes):
        game, steps = play(agent, env, learn=True, steps=steps, seed=None if episode else seed)
        games.append(game)
        if (episode + 1) % 100 == 0:
            last = games[-100:]
            length = sum(game.snake_length for game in last) / len(last)
            print(f"{episode + 1} games, {steps} steps: length {length:.1f}, epsilon {agent.epsilon:.2f}")
    return games


def evaluate(agent: DQNAgent, env: SnakeEnv, episodes: int = 10, seed: int = 1) -> tuple[float, int]:
    """Mean and best length of the snake in greedy games."""
    lengths = [
        play(agent, env, learn=False, seed=None if episode else seed)[0].snake_length for episode in range(episodes)
    ]
    return sum(lengths) / len(lengths), max(lengths)


def draw(games: Sequence[Game], path: Path) -> None:
    """Four curves over the games, as means of 50."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).flat, Game._fields, strict=True):
        values = torch.tensor([getattr(game, name) for game in games], dtype=torch.float64)
        window = min(50, len(values))
        axes.plot(range(window, len(values) + 1), values.unfold(0, window, 1).nanmean(1))
        axes.set(xlabel="games", ylabel=name.replace("_", " "))
    figure.savefig(path)


def require_usable(chosen: argparse.Namespace) -> None:
    """Refuse what would fail after hours of training.

    Raises:
        ConfigurationError: for no games, a device that is not there, and files that cannot be written.
    """
    if chosen.episodes < 1:
        raise ConfigurationError(f"--episodes is {chosen.episodes}; it must be at least 1, or take --eval-only.")
    try:
        torch.empty(0, device=chosen.device)
    except (RuntimeError, AssertionError):
        raise ConfigurationError(f"--device {chosen.device} is not there; take cpu or cuda, or leave it out.") from None
    if chosen.eval_only:
        return
    for option, path in (("--save", chosen.save), ("--figure", chosen.figure)):
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise ConfigurationError(f"{option} {path} cannot be written; give a file in a folder that exists.")
    if chosen.figure is not None:
        require_drawable(chosen.figure)


def require_drawable(path: Path) -> None:
    """Raises: ConfigurationError without matplotlib, and for a kind of picture that it does not know."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise ConfigurationError("Figures need matplotlib: pip install matplotlib, or leave --figure out.") from None
    if path.suffix[1:] not in FigureCanvasBase.get_supported_filetypes():
        raise ConfigurationError(f"--figure {path} is no picture; end its name in .png, .pdf or .svg.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train unless only to evaluate, save, evaluate."""
    parser = argparse.ArgumentParser(description="Snake by deep Q-learning, as the older system ran it.")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--use-features", action="store_true", help="nineteen features and the shaped rewards")
    parser.add_argument("--device", help="cpu or cuda; by default a GPU where there is one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=Path, help="a checkpoint to go on from, the old system's too")
    parser.add_argument("--save", type=Path, default=Path("snake.pt"))
    parser.add_argument("--figure", type=Path, help="draw the games' curves here")
    parser.add_argument("--eval-only", action="store_true")
    chosen = parser.parse_args(arguments)
    require_usable(chosen)
    torch.set_num_threads(1)  # matrices this small lose by a second thread
    env = SnakeEnv(dim=chosen.dim, use_features=chosen.use_features)
    agent = DQNAgent(env.state_size, len(MOVES), device=chosen.device, seed=chosen.seed)
    if chosen.load:
        agent.load(chosen.load)
    if not chosen.eval_only:
        games = train(agent, env, chosen.episodes, chosen.seed)
        agent.save(chosen.save)
        if chosen.figure:
            draw(games, chosen.figure)
    mean, best = evaluate(agent, env)
    print(f"greedy: mean length {mean:.1f}, best {best}")


if __name__ == "__main__":
    try:
        main()
    except ConfigurationError as error:
        exit_with_error(str(error))
