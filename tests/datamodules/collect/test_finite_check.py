import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard
from datamodules.collect.finite_check import FiniteCheck
from datamodules.core.types import MetricVector, NonFiniteError, Rollout, State
from datamodules.rollout import RolloutDataModule
from tests.support.counting_env import Counting, CountingTensors
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import small_ppo, trainer

NUMBERS = [math.nan, math.inf, -math.inf]


class Spoiling(Counting):
    """Returns such a number from its seventh step of all, as a reward or in an observation."""

    def __init__(self, number: float, where: str) -> None:
        super().__init__(length=5)
        self.number, self.where, self.steps = number, where, 0

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        self.steps += 1
        if self.steps == 7 and self.where == "reward":
            reward = self.number
        if self.steps == 7 and self.where == "obs":
            obs[1] = self.number
        return obs, reward, *rest


class SpoilingTensors(CountingTensors):
    """Pays NaN to row 2 in the second step of an episode."""

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        after, reward, *ends = super().transition(state, action.clamp(max=0), noise)
        spoiled = (torch.arange(len(reward), device=reward.device) == 2) & (after["count"] == 2)
        return after, reward.masked_fill(spoiled, math.nan), *ends


def spoiling(number: float, where: str, **changes: Any) -> RolloutDataModule:
    settings: dict[str, Any] = {
        "num_envs": 2,
        "rollout_length": 4,
        "total_env_steps": 800,
        "eval_episodes": 2,
        **changes,
    }
    return RolloutDataModule(f"{__name__}.Spoiling", env_kwargs={"number": number, "where": where}, **settings)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("where", "what"), [("reward", "the reward {}"), ("obs", "an observation with {} at place 1")])
def test_what_is_not_finite_is_named_with_environment_and_step(
    tmp_path: Path, number: float, where: str, what: str
) -> None:
    data = spoiling(number, where)

    with pytest.raises(NonFiniteError) as raised:
        trainer(tmp_path, DivergenceGuard()).fit(small_ppo(data), data)

    assert f"Spoiling returned {what.format(number)} in environment 0, in step 7 since" in str(raised.value)


@pytest.mark.parametrize("changes", [{"backend": "async"}, {"backend": "pool"}, {"policy_lag": 1}])
def test_it_is_named_whoever_steps_the_environments(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = spoiling(math.nan, "reward", **changes)

    with pytest.raises(NonFiniteError, match="reward nan in environment 0, in step 7 since"):
        trainer(tmp_path, DivergenceGuard()).fit(small_ppo(data), data)


def test_it_is_named_in_a_replay(tmp_path: Path) -> None:
    data = replay_data(env=f"{__name__}.Spoiling", env_kwargs={"number": math.inf, "where": "reward"}, backend="sync")

    with pytest.raises(NonFiniteError, match="reward inf in environment 0, in step 7 since"):
        trainer(tmp_path, DivergenceGuard()).fit(small_dqn(data), data)


def test_the_environment_of_a_row_of_tensors_is_named(tmp_path: Path) -> None:
    data = RolloutDataModule(
        f"{__name__}.SpoilingTensors", num_envs=4, rollout_length=4, total_env_steps=800, eval_episodes=4
    )

    with pytest.raises(NonFiniteError, match="SpoilingTensors returned the reward nan in environment 2, in step 2"):
        trainer(tmp_path, DivergenceGuard()).fit(small_ppo(data), data)


def test_no_checkpoint_is_made_of_what_was_collected(tmp_path: Path) -> None:
    data = spoiling(math.nan, "obs")

    with pytest.raises(NonFiniteError):
        trainer(tmp_path, DivergenceGuard(), RunCheckpoint()).fit(small_ppo(data), data)

    assert not list(tmp_path.rglob("*.ckpt"))


def rollout(**columns: Tensor) -> Rollout:
    """Three steps of two rows, all of them zeros."""
    zeros, flags = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    plain: dict[str, Any] = {
        "obs": torch.zeros(4, 2, 1), "action": zeros, "reward": zeros, "terminated": flags, "truncated": flags,
        "valid": ~flags, "episode_start": flags, "final_obs": torch.zeros(1, 2, 1),
        "final_step": torch.full((1, 2), -1),
        "state": {}, "extras": {}, "episodes": MetricVector((), torch.zeros(0)), "env_steps": 6,
        "has_autoreset_steps": False,
    }  # fmt: skip
    return Rollout(**(plain | columns))


def at(column: Tensor, *place: int, value: float = math.nan) -> Tensor:
    return column.clone().index_put_(tuple(torch.tensor(index) for index in place), torch.tensor(value))


def test_a_last_observation_belongs_to_the_step_that_was_truncated() -> None:
    final_obs, final_step = at(torch.zeros(1, 2, 1), 0, 1, 0), torch.tensor([[-1, 2]])

    with pytest.raises(
        NonFiniteError, match="Env returned a last observation that is not finite in environment 1, in st"
    ):
        FiniteCheck("Env", 1).note(rollout(final_obs=final_obs, final_step=final_step), finals=True)


def test_the_first_observation_comes_from_a_reset() -> None:
    with pytest.raises(NonFiniteError, match="with nan at place 0 in environment 0, from its first reset:"):
        FiniteCheck("Env", 2).note(rollout(obs=at(torch.zeros(4, 2, 1), 0, 1, 0)), finals=False)


@pytest.mark.parametrize(
    "columns",
    [
        {"reward": torch.full((3, 2), 3e38)},  # their sum is infinite
        {"reward": at(torch.zeros(3, 2), 1, 0), "valid": torch.tensor([[True, True], [False, True], [True, True]])},
        {"obs": at(torch.zeros(4, 2, 1), 1, 0, 0), "valid": torch.tensor([[True, True], [False, True], [True, True]])},
        {"obs": at(torch.zeros(4, 2, 1), 2, 0, 0), "action": at(torch.zeros(3, 2), 1, 0)},  # the policy's mistake
        {"final_obs": at(torch.zeros(1, 2, 1), 0, 0, 0)},  # an unused slot
    ],
)
def test_finite_values_and_what_nothing_is_learned_from_are_let_through(columns: dict[str, Tensor]) -> None:
    FiniteCheck("Env", 1).note(rollout(**columns), finals=True)


def test_whole_numbers_are_not_summed() -> None:
    FiniteCheck("Env", 1).note(rollout(obs=torch.zeros(4, 2, 1, dtype=torch.uint8)), finals=False)
