"""Training with a pool of past checkpoints, then rating them."""

import csv
import json
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.elo.main import Player, checkpoints_of, make_games, opponents_of, play
from app.elo.ratings import Game
from datamodules import RolloutDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, PolicyOutput, State
from datamodules.envs.carball.chaser import Chaser
from modules import PPO, CheckpointPool, UniformPolicy
from tests.app.conftest import Run

OPTIONS = Namespace(games=2, max_steps=4, seed=0, won="goals", lost="conceded")

LONG = Namespace(**{**vars(OPTIONS), "max_steps": 300})
POLICIES = (("chaser", Chaser), ("random", UniformPolicy))
CHASER = "      - class_path: datamodules.envs.carball.Chaser\n"

CONFIG = """
model:
  class_path: modules.PPO
  init_args: {update_epochs: 1, num_minibatches: 2}
data:
  class_path: datamodules.RolloutDataModule
  init_args:
    env: Carball-v0
    env_kwargs: {mode: 1v2, time_limit: 30}
    policy_group: [0, 1, 2]
    opponents:
      - class_path: datamodules.envs.carball.Chaser
      - class_path: modules.CheckpointPool
        init_args: {size: 2}
    num_envs: 4
    rollout_length: 8
    total_env_steps: 192
    eval_episodes: 2
trainer:
  accelerator: cpu
  max_epochs: 1
  logger: {class_path: lightning.pytorch.loggers.CSVLogger, init_args: {save_dir: runs, name: small}}
  callbacks+:
    - class_path: callbacks.SelfPlay
      init_args: {every_n_iterations: 2}
"""


def test_a_run_is_rated(run: Run, folder: Path) -> None:
    (folder / "a.yaml").write_text(CONFIG)
    trained = run("fit", "--config", "a.yaml")
    place = folder / "runs" / "small" / "version_0"
    assert trained.code == 0, trained.err
    assert [path.name for path in sorted((place / "checkpoints" / "pool").glob("*.ckpt"))] == [
        f"iteration={number:07d}.ckpt" for number in (0, 2, 4, 6)
    ]

    rated = run("elo", str(place), "--games", "2", "--checkpoints", "3", "--max_steps", "20")

    assert rated.code == 0, rated.err
    with (place / "elo.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["player"] for row in rows] == ["0 env steps", "64 env steps", "192 env steps", "Chaser"]
    assert sum(float(row["rating"]) for row in rows) == pytest.approx(4 * 1500, abs=0.3)
    assert all(float(row["interval"]) > 0 for row in rows)
    assert all(int(row["won"]) + int(row["drawn"]) + int(row["lost"]) == 12 for row in rows)
    picture = np.asarray(Image.open(place / "elo.png"))
    assert picture.ndim == 3 and picture.min() < picture.max()
    assert "12 of 12" in rated.out and "elo.csv" in rated.out
    (place / "elo.csv").unlink()
    above = run("elo", "runs/small", "--games", "1", "--checkpoints", "1", "--max_steps", "2")
    assert above.code == 0 and (place / "elo.csv").is_file(), above.err


def test_the_best_checkpoints_play_too_in_the_order_of_their_steps(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "pool").mkdir(parents=True)
    entry = dict.fromkeys(("score", "monitor", "environment")) | {
        "sha256": "",
        "iteration": 0,
        "mode": "max",
        "best": "",
    }
    files = {"last.ckpt": 90, "best-env_steps=40-return_mean=1.00.ckpt": 40, "pool/iteration=0000005.ckpt": 50}
    for name, steps in files.items():
        (checkpoints / name).touch()
        (checkpoints / f"{name}.json").write_text(json.dumps([entry | {"env_steps": steps}]))

    found = [str(path.relative_to(checkpoints)) for path in checkpoints_of(tmp_path)]

    assert found == ["best-env_steps=40-return_mean=1.00.ckpt", "pool/iteration=0000005.ckpt", "last.ckpt"]


def test_bad_options_get_one_sentence(run: Run, folder: Path) -> None:
    for words, said in (
        (("nowhere",), "There are no checkpoints in nowhere/checkpoints"),
        ((".",), "There is no checkpoint in .: give a file, or the folder of a run"),
        (("nowhere", "--games", "0"), "--games is 0"),
        (("nowhere", "--max_steps", "0"), "--max_steps is 0"),
    ):
        refused = run("elo", *words)
        assert refused.code == 2 and said in refused.err and refused.err.strip().count("\n") == 0


def carball(mode: str, *policy_group: int, **settings: Any) -> RolloutDataModule:
    settings = {"opponents": [Chaser] * max(policy_group), "num_envs": 2, "rollout_length": 8} | settings
    return RolloutDataModule("Carball-v0", env_kwargs={"mode": mode}, policy_group=[*policy_group], **settings)


def played(data: RolloutDataModule, first: Player, second: Player) -> list[Game]:
    with closing(make_games(data, OPTIONS.games)) as envs:
        return play(envs, data, first, second, OPTIONS)


class Counting(Chaser):
    """Chaser that notes the rows that it plays."""

    def act(self, inputs: PolicyInput, *arguments: Any, **settings: Any) -> tuple[PolicyOutput, State]:
        self.rows = len(inputs.episode_start)
        return super().act(inputs, *arguments, **settings)


def test_one_of_several_checkpoints_alone_is_refused(run: Run, folder: Path) -> None:
    (folder / "a.yaml").write_text(CONFIG.replace("[0, 1, 2]", "[0, 1, 1]").replace(CHASER, ""))
    assert run("fit", "--config", "a.yaml", "--data.total_env_steps", "128").code == 0

    refused = run("elo", "runs/small", "--checkpoints", "1")

    assert refused.code == 2 and refused.err.count("\n") == 1
    assert "--checkpoints is 1, and the run has no other opponent: rate at least 2 of its" in refused.err


def test_a_run_without_opponents_is_refused(run: Run, trained: Path) -> None:
    for path in (trained, trained.parent):
        refused = run("elo", str(path))
        assert refused.code == 2 and refused.err.count("\n") == 1
        assert refused.err.startswith("The run in CartPole-v1 has no opponents to play games against: only runs in")


def test_environments_serve_several_pairs() -> None:
    data = carball("1v1", 0, 1)
    chaser, other = (Player(name, policy(data.agents.agent_spaces), None) for name, policy in POLICIES)

    with closing(make_games(data, 2)) as envs:
        again = [play(envs, data, *pair, LONG) for pair in ((other, chaser), (chaser, other), (other, chaser))]

    assert again[0] == again[2]


def test_players_see_the_appended_observations() -> None:
    data = carball("1v1", 0, 1, opponents=[CheckpointPool], append_obs=["last_action", "agent_id"])
    one, other = (Player(name, PPO(data.spaces), 0) for name in "ab")

    assert [game[:2] for game in played(data, one, other)] == [("a", "b")] * 2


def test_the_players_play_the_learners_team_and_all_other_agents() -> None:
    data = carball("1v2", 0, 1, 2)
    one, other = (Counting(data.agents.agent_spaces) for _ in range(2))

    played(data, Player("a", one, None), Player("b", other, None))
    assert (one.rows, other.rows) == (2, 2)  # every group of the second player is played on its own

    data = carball("2v2", 0, 0, 1, 1)
    played(data, Player("a", one, None), Player("b", other, None))
    assert (one.rows, other.rows) == (4, 4)


def test_a_team_of_several_groups_is_refused() -> None:
    data = carball("2v2", 0, 1, 2, 2)
    player = Player("a", Chaser(data.agents.agent_spaces), None)

    with pytest.raises(ConfigurationError, match=r"\[0, 1, 2, 2\], but agent 1 of group 1 is in the learner's team"):
        played(data, player, player)


def test_opponents_of_one_class_are_different_players() -> None:
    data = carball("2v2", 0, 0, 1, 2)

    assert [player.name for player in opponents_of(data)] == ["Chaser (group 1)", "Chaser (group 2)"]
    assert [player.name for player in opponents_of(carball("1v2", 0, 1, 1))] == ["Chaser"]
