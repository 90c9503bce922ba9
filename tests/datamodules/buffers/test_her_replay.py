from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.buffers.her_replay import HerReplayBuffer, batched_reward
from datamodules.buffers.ring_buffer import RingBuffer
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import ReplayBatch, Rollout
from datamodules.replay import ReplayDataModule
from modules.sac.sac import SAC
from tests.support.rollout_fixtures import Writer
from tests.support.small_runs import trainer, weights_hash

CPU = torch.device("cpu")
GOAL_ENV = "tests.support.parts_env.GoalLine"


class GoalWriter(Writer):
    """Rollouts of a goal environment: the achieved goal at time t is t (1000 + t of a true last observation)."""

    def rollout(self, steps: int) -> tuple[Rollout, dict[str, torch.Tensor]]:
        rollout, masks = super().rollout(steps)
        parts = [
            {"observation": obs, "achieved_goal": obs[..., :1], "desired_goal": torch.full_like(obs[..., :1], -1)}
            for obs in (rollout.obs, rollout.final_obs)
        ]
        return rollout._replace(obs=parts[0], final_obs=parts[1]), masks


def distance(achieved: Any, desired: Any, info: Any) -> Any:
    return np.abs(achieved - desired)[..., 0]


def her(writer: Writer, rollouts: int = 6, rows: int = 40, finals: int = 16, **settings: Any) -> HerReplayBuffer:
    replay = None
    for _ in range(rollouts):
        rollout, masks = writer.rollout(4)
        if replay is None:
            ring = RingBuffer(rollout, masks, rows, num_final_slots=finals, device=CPU)
            kinds = {"has_invalid_steps": False, "compute_reward": distance}
            replay = HerReplayBuffer(ring, CPU, **kinds, **settings)
        replay.write(rollout, masks)
        replay.write(rollout, masks)  # a captured call is repeated
        replay.commit_()
    return replay


def drawn(replay: HerReplayBuffer, number: int = 3000) -> ReplayBatch:
    return replay.sample(replay.noise(1, number, torch.Generator().manual_seed(0)))


def allowed_goals(writer: Writer, t: int, newest: int, strategy: str, oldest: int = 0) -> set[int]:
    """Return the goals that step t of the oracle's episodes may get, by a loop over steps."""
    last = next((end for end in range(t, newest) if end in writer.terminated + writer.truncated), newest)
    first = t
    while first > oldest and not writer.begins(first):
        first -= 1
    steps = {
        "future": range(t, last + 1),
        "final": range(max(t, last - (last in writer.terminated)), last + 1),
        "episode": range(first, last + 1),
    }[strategy]
    goals = {step + 1 for step in steps}
    if last in writer.terminated:
        goals.discard(last + 1)
    if last in writer.truncated and last + 1 in goals:
        goals = goals - {last + 1} | {1000 + last}
    return goals


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("ends", [((), ()), ((), (6, 13)), ((5, 14), (9,)), ((3,), (3, 20))])
def test_goals_are_those_that_a_loop_over_the_episode_allows(ends: tuple[Any, Any], strategy: str):
    writer = GoalWriter(terminated=ends[0], truncated=ends[1])
    writer.truncated = tuple(set(writer.truncated) - set(writer.terminated))
    batch = drawn(her(writer, goal_selection_strategy=strategy), 40_000)
    seen: dict[int, set[int]] = {}
    for t, goal, reward, achieved in zip(
        batch.obs["achieved_goal"][0, :, 0].tolist(),
        batch.obs["desired_goal"][0, :, 0].tolist(),
        batch.reward[0, :, 0].tolist(),
        batch.next_obs["achieved_goal"][0, :, 0].tolist(),
        strict=True,
    ):
        if goal == -1:
            assert reward == t  # its own goal and reward
        else:
            assert reward == abs(achieved - goal)
            seen.setdefault(int(t), set()).add(int(goal))
    expected = {t: allowed_goals(writer, t, 23, strategy) for t in range(24)}
    assert seen == {t: goals for t, goals in expected.items() if goals}
    assert torch.equal(batch.next_obs["desired_goal"], batch.obs["desired_goal"])


def test_the_share_of_relabelled_transitions_is_n_in_n_plus_one():
    share = (drawn(her(GoalWriter(), n_sampled_goal=3), 20_000).obs["desired_goal"] != -1).float().mean()
    assert float(share) == pytest.approx(0.75, abs=0.01)


def test_episodes_that_the_ring_overwrites_leave_goals_of_what_is_stored_only():
    writer = GoalWriter(truncated=(30,))
    batch = drawn(her(writer, rollouts=20, rows=24, goal_selection_strategy="episode"))
    goals = batch.obs["desired_goal"][batch.obs["desired_goal"] != -1]
    oldest = 80 - 23
    assert float(goals.min()) == oldest + 1 and float(goals.max()) == 80


def test_a_lost_last_observation_is_no_goal():
    writer = GoalWriter(truncated=(2, 5, 8, 11))
    batch = drawn(her(writer, finals=2, goal_selection_strategy="final"))
    goals = set(batch.obs["desired_goal"].flatten().tolist())
    assert {1002.0, 1005.0}.isdisjoint(goals) and 1011.0 in goals


def test_a_restored_buffer_draws_the_same_and_one_without_episodes_is_refused():
    replay, other = her(GoalWriter(truncated=(6,))), her(GoalWriter(), rollouts=1)
    state = replay.state_dict()
    other.load_state_dict(state)
    assert torch.equal(drawn(other).obs["desired_goal"], drawn(replay).obs["desired_goal"])
    with pytest.raises(ConfigurationError, match="does not know the episodes of its steps"):
        other.load_state_dict({key: value for key, value in state.items() if key != "episodes"})


def test_a_reward_of_single_goals_is_computed_one_by_one():
    def single(achieved: Any, desired: Any, info: Any) -> float:
        return float(-np.linalg.norm(achieved - desired))

    achieved, desired = np.zeros((3, 2), np.float32), np.array([[3, 4], [0, 1], [0, 0]], np.float32)
    assert batched_reward(single)(achieved, desired).tolist() == [-5, -1, 0]


def goal_data(**changes: Any) -> ReplayDataModule:
    sizes = {"num_envs": 2, "train_freq": 4, "batch_size": 16, "replay_ratio": 4, "capacity": 512}
    run = {"total_env_steps": 160, "learning_starts": 32, "eval_episodes": 4, "backend": "sync", "n_sampled_goal": 4}
    return ReplayDataModule(GOAL_ENV, **{**sizes, **run, **changes})


def learned(root: Path, *callbacks: Any, ckpt_path: Path | None = None, **changes: Any) -> SAC:
    lightning.seed_everything(1, verbose=False)
    data = goal_data()
    model = SAC(data.spaces)
    trainer(root, *callbacks, **changes).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    assert data._goal_env is None
    return model


def test_runs_repeat_themselves_and_resume_with_the_goals_of_the_file(tmp_path: Path):
    assert weights_hash(learned(tmp_path / "a")) == weights_hash(learned(tmp_path / "b"))
    learned(tmp_path / "part", RunCheckpoint(), max_steps=12)
    again = learned(tmp_path / "rest", ckpt_path=next((tmp_path / "part").rglob("last.ckpt")))
    assert again.env_steps == 160


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_step": 3}, "data.n_step is 3; with data.n_sampled_goal windows have one step: set it to 1"),
        ({"n_sampled_goal": -1}, "data.n_sampled_goal is -1 .* give a whole number from 0"),
        ({"goal_selection_strategy": "late"}, "data.goal_selection_strategy 'late': give"),
        ({"env": "CartPole-v1"}, "CartPole-v1 have no observation and no achieved_goal and no desired_goal"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(changes: dict[str, Any], sentence: str):
    with pytest.raises(ConfigurationError, match=sentence):
        env = changes.pop("env", GOAL_ENV)
        ReplayDataModule(env, **{"n_sampled_goal": 4, "num_envs": 2, "batch_size": 16, "replay_ratio": 8, **changes})


def test_an_environment_without_a_reward_of_goals_is_refused(tmp_path: Path):
    data = goal_data()
    data.env = "tests.support.parts_env.GoalWithoutReward"
    with pytest.raises(ConfigurationError, match=r"GoalWithoutReward has no compute_reward\(achieved_goal"):
        data.compute_reward()
