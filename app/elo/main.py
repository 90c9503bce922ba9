"""`python -m app elo`: rate the checkpoints of a run against one another and against other opponents."""

import argparse
import csv
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from app.agent.data import load_data
from app.agent.load import load
from app.cli.error_messages import PlainParser, exit_with_error
from app.cli.import_policy import restrict_imports, trusted
from app.elo.ratings import Game, Rating, Record, elo_ratings, record
from callbacks.figures.plotting import COLOURS, INK, encode, legend_below, new_figure, style
from callbacks.performance.execution_summary import table
from datamodules.base import EnvDataModule
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import read_index
from datamodules.core.files.run_checkpoints import checkpoint_in
from datamodules.core.protocols import Policy, VectorEnv
from datamodules.vector.make_env import make_vector_env


class Player(NamedTuple):
    """Name and policy of a player, and the environment steps that it was trained for; None if it does not learn."""

    name: str
    policy: Policy
    env_steps: int | None


def main() -> None:
    """Play the games, print the table, and write table and figure.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input.
    """
    restrict_imports(trusted())
    options = make_parser().parse_args(sys.argv[2:])
    for name in ("games", "checkpoints", "max_steps"):
        if getattr(options, name) < 1:
            exit_with_error(f"--{name} is {getattr(options, name)}; it must be at least 1.")
    try:
        rate(options)
    except ConfigurationError as error:
        exit_with_error(str(error))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser("python -m app elo", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "run",
        type=Path,
        help=("folder of a run, or one above it: its best and last checkpoints play, with those of callbacks.SelfPlay"),
    )
    parser.add_argument("--checkpoints", type=int, default=8, help="most checkpoints, spread evenly over the run (8)")
    parser.add_argument("--games", type=int, default=32, help="games of each pair with each side (32)")
    parser.add_argument("--won", default="goals", help="statistic of an episode that counts for the player (goals)")
    parser.add_argument("--lost", default="conceded", help="statistic that counts against it (conceded)")
    parser.add_argument("--max_steps", type=int, default=1000, help="steps after which a game ends (1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the games (0)")
    parser.add_argument("--folder", type=Path, help="folder for elo.csv and elo.png (that of the run)")
    return parser


def rate(options: argparse.Namespace) -> None:
    """Play every pair of players, and report their ratings.

    Raises:
        ConfigurationError: if there are fewer than two players, and as `make_games` and `play`.
    """
    run = run_folder(options.run)
    found = checkpoints_of(run)
    paths = spread(found, options.checkpoints)
    data = load_data(paths[-1], trusted())
    require_opponents(data)
    players = [*checkpoint_players(paths), *opponents_of(data)]
    if len(players) < 2 and len(paths) < len(found):
        raise ConfigurationError(
            f"--checkpoints is {options.checkpoints}, and the run has no other opponent: rate at least 2 of its"
            f" {len(found)} checkpoints."
        )
    if len(players) < 2:
        raise ConfigurationError(
            f"{run} has one checkpoint and no other opponent: train with callbacks.SelfPlay, or with a higher"
            " save_top_k of callbacks.RunCheckpoint, which keep more."
        )
    games: list[Game] = []
    pairs = list(itertools.permutations(players, 2))
    with closing(make_games(data, options.games)) as envs:
        for number, (first, second) in enumerate(pairs, start=1):
            played = play(envs, data, first, second, options)
            mean = sum(game.score for game in played) / len(played)
            print(f"{number} of {len(pairs)}: {first.name} scores {mean:.2f} against {second.name}", flush=True)
            games += played
    names = [player.name for player in players]
    ratings = elo_ratings(names, games)
    folder = options.folder or run
    write(folder, players, ratings, games)
    ranked = sorted(names, key=lambda name: -ratings[name].rating)
    print(table("Elo, with 95 % intervals:", {name: line(ratings[name], record(name, games)) for name in ranked}))
    print(f"Table and figure: {folder / 'elo.csv'}, {folder / 'elo.png'}")


def line(rating: Rating, games: Record) -> str:
    """Return the rating and the results of a player as text."""
    return f"{rating.rating:6.0f} ± {rating.interval:.0f}   {games.won} won, {games.drawn} drawn, {games.lost} lost"


def run_folder(path: Path) -> Path:
    """Return the folder of a run: the path itself, or the newest run of an experiment's folder.

    Raises:
        ConfigurationError: if there is no checkpoint in a folder.
    """
    return path if (path / "checkpoints").is_dir() or not path.is_dir() else checkpoint_in(path).parents[1]


def checkpoints_of(run: Path) -> list[Path]:
    """Return the checkpoints of a run in the order of their env steps: those of `SelfPlay`, the best and the last.

    Raises:
        ConfigurationError: if there are none.
    """
    folder = run / "checkpoints"
    found = [*folder.glob("pool/iteration=*.ckpt"), *folder.glob("best-*.ckpt"), *folder.glob("last.ckpt")]
    if not found:
        raise ConfigurationError(f"There are no checkpoints in {folder}: give the folder of a run, such as runs/NAME.")
    by_steps = {env_steps_of(path) or path: path for path in sorted(found)}
    return sorted(by_steps.values(), key=env_steps_of)


def env_steps_of(checkpoint: Path) -> int:
    """Return the environment steps in a checkpoint's index; 0 without one."""
    return next((entry.env_steps for entry in read_index(checkpoint)), 0)


def spread(paths: Sequence[Path], number: int) -> list[Path]:
    """Return at most so many of the paths, evenly spaced, with the last one."""
    if len(paths) <= number:
        return list(paths)
    step = (len(paths) - 1) / max(1, number - 1)
    return [paths[len(paths) - 1 - round(index * step)] for index in range(number)][::-1]


def checkpoint_players(paths: Sequence[Path]) -> Iterator[Player]:
    """Yield the players of checkpoints, named by their environment steps; one for each number of steps."""
    known: set[int] = set()
    for path in paths:
        agent = load(path, trusted())
        if agent.env_steps not in known:
            known.add(agent.env_steps)
            yield Player(f"{agent.env_steps:,} env steps", cast(Policy, agent.module), agent.env_steps)


def opponents_of(data: EnvDataModule) -> Iterator[Player]:
    """Yield the opponents of the run's configuration that are no checkpoints of the run itself.

    They are named by their class; those of the same class also by their group in `data.policy_group`.
    """
    opponents = enumerate(data.agents.opponents(torch.device("cpu")), start=1)
    kept = [(group, policy, type(policy).__name__) for group, policy in opponents if not hasattr(policy, "fill")]
    classes = Counter(name for _, _, name in kept)
    for group, policy, name in kept:
        yield Player(f"{name} (group {group})" if classes[name] > 1 else name, policy, None)


def require_opponents(data: EnvDataModule) -> list[int]:
    """Return the group of every agent, after a check that there are opponents.

    Raises:
        ConfigurationError: if no agent is of another group than the learner's.
    """
    groups = data.agents.policy_group
    if groups is None or len({*groups}) < 2:
        raise ConfigurationError(
            f"The run in {data.env} has no opponents to play games against: only runs in which data.policy_group gives"
            " some agents to opponents, such as ppo_carball.yaml, can be rated."
        )
    return [*groups]


def make_games(data: EnvDataModule, games: int) -> VectorEnv:
    """Make the environments of a run, one for each game.

    Raises:
        ConfigurationError: if the run has no opponents, or if its `data.policy_group` splits the learner's team.
    """
    where: dict[str, Any] = {"backend": data.backend, "timeout": data.env_timeout}
    where |= {"env_kwargs": data.eval_env_kwargs, "wrappers": data.wrappers}
    envs = make_vector_env(data.env, games, **where)
    try:
        require_whole_team(envs, require_opponents(data))
    except ConfigurationError:
        envs.close()
        raise
    return envs


def play(
    envs: VectorEnv, data: EnvDataModule, first: Player, second: Player, options: argparse.Namespace
) -> list[Game]:
    """Play games of two players: the first plays the agents of group 0, the second those of all other groups.

    Args:
        envs: environments of the games, which are reset.   data: data module of the run.

    Raises:
        ConfigurationError: if the episodes lack the statistics of the score.
    """
    rows = data.agents.wrap(envs, [second.policy] * max(require_opponents(data)))
    limits: dict[str, Any] = {"max_steps": options.max_steps, "cut": True, "name": data.env}
    dataset = EvaluationDataset(rows, first.policy, options.games, seed=options.seed, greedy=False, **limits)
    info = dataset.run().info
    if missing := [name for name in (options.won, options.lost) if name not in info]:
        raise ConfigurationError(
            f"The episodes of {data.env} have no {missing[0]}: choose --won and --lost from {', '.join(info)}."
        )
    scores = (info[options.won] - info[options.lost]).sign() / 2 + 0.5
    return [Game(first.name, second.name, score) for score in scores.tolist()]


def require_whole_team(envs: VectorEnv, groups: Sequence[int]) -> None:
    """Check that group 0 plays whole teams; environments without `agent_teams` are not checked.

    Raises:
        ConfigurationError: if an agent of another group is in a team of group 0.
    """
    teams: Sequence[int] = getattr(getattr(envs, "env", None), "agent_teams", None) or range(len(groups))
    learning = {team for team, group in zip(teams, groups, strict=True) if group == 0}
    if mates := [agent for agent, team in enumerate(teams) if team in learning and groups[agent] != 0]:
        raise ConfigurationError(
            f"data.policy_group is {[*groups]}, but agent {mates[0]} of group {groups[mates[0]]} is in the learner's"
            " team, and games are played between whole teams: rate a run in which that team has group 0 only."
        )


def write(folder: Path, players: Sequence[Player], ratings: dict[str, Rating], games: Sequence[Game]) -> None:
    """Write the table `elo.csv` and the figure `elo.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "elo.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("player", "env_steps", "rating", "interval", "won", "drawn", "lost"))
        for player in players:
            steps = "" if player.env_steps is None else player.env_steps
            numbers = (round(number, 1) for number in ratings[player.name])
            writer.writerow((player.name, steps, *numbers, *record(player.name, games)))
    with style():
        (folder / "elo.png").write_bytes(encode(draw_ratings(players, ratings)))


def draw_ratings(players: Sequence[Player], ratings: dict[str, Rating]) -> Any:
    """Draw the ratings of the checkpoints against their environment steps, and of other opponents as dashed lines."""
    figure, ((axes,),) = new_figure()
    learned = [(player.env_steps / 1e6, *ratings[player.name]) for player in players if player.env_steps is not None]
    steps, rating, interval = zip(*learned, strict=True)
    label = "checkpoints of the run, 95 % interval"
    handles: list[Any] = [axes.errorbar(steps, rating, interval, color=COLOURS[0], marker="o", capsize=3, label=label)]
    for number, player in enumerate(each for each in players if each.env_steps is None):
        dashes = (0, (4 + 3 * number, 3))
        handles.append(axes.axhline(ratings[player.name].rating, color=INK, linestyle=dashes, label=player.name))
    axes.set(xlabel="environment steps of the checkpoint (millions)", ylabel="Elo rating")
    figure.suptitle("Elo ratings of a run's checkpoints")
    legend_below(figure, handles)
    return figure
