"""Replay buffers filled from stored episodes, and runs that go on to collect."""

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from torch import Tensor

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.trajectory_writer import write_trajectories
from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.stored_episodes import rollout_of
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.episode_files import read_episodes
from datamodules.offline_replay import OfflineReplayDataModule
from modules.dqn.dqn import DQN
from modules.sac.sac import SAC
from tests.support.small_runs import trainer, weights_hash

Episode = dict[str, Tensor]


def episode(length: int, first: float, *, ends: str, size: int = 3) -> Episode:
    """Steps of Pendulum's shapes whose observations count from `first` on."""
    flags = {name: torch.zeros(length, dtype=torch.bool) for name in ("terminated", "truncated")}
    if ends:
        flags[ends][-1] = True
    obs = torch.arange(first, first + length + 1).unsqueeze(1).expand(-1, size).contiguous()
    action = torch.linspace(-2, 2, length).unsqueeze(1)
    return {"obs": obs, "action": action, "reward": obs[:-1, 0] / 100, **flags}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Six episodes of 20 steps, which end in the three ways."""
    ends = ["truncated", "terminated", "", "truncated", "terminated", ""]
    episodes = [episode(20, 100.0 * number, ends=end) for number, end in enumerate(ends)]
    write_trajectories(tmp_path / "trajectories.npz", episodes)
    return tmp_path / "trajectories.npz"


def pendulum_data(stored: Path | str, **changes: Any) -> OfflineReplayDataModule:
    sizes: dict[str, Any] = {"num_envs": 2, "batch_size": 16, "replay_ratio": 16, "capacity": 400, "eval_episodes": 2}
    run = {"total_env_steps": 40, "eval_max_steps": 10, "backend": "sync"}
    return OfflineReplayDataModule(str(stored), "Pendulum-v1", **{**sizes, **run, **changes})


def fitted(root: Path, data: OfflineReplayDataModule, ckpt_path: Path | None = None, **settings: Any) -> SAC:
    lightning.seed_everything(1, verbose=False)
    model = SAC(data.spaces, **settings)
    run = trainer(root, RunCheckpoint(), val_check_interval=10)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def test_stored_steps_come_back_with_their_successors_and_ends(stored: Path, tmp_path: Path) -> None:
    data = pendulum_data(stored, n_step=3)
    fitted(tmp_path, data)
    replay = data.dataset.replay
    assert isinstance(replay, NStepReplayBuffer)

    found = replay.sample(torch.rand(1, 4000, 1, dtype=torch.float64))

    obs, after, steps = found.obs[0, :, 0], found.next_obs[0, :, 0], found.num_steps[0]
    used = found.loss_weight[0] > 0
    bootstraps = used & ~found.terminated[0]
    assert torch.equal(after[bootstraps], (obs + steps)[bootstraps])  # also behind truncated ends
    assert ((obs % 100 + steps)[found.terminated[0]] == 20).all()
    assert set((obs // 100).long()[found.terminated[0] & used].tolist()) == {1, 4}
    assert len(set(obs[used].tolist())) >= 115  # of 120; the last step of either row has no successor
    reward = sum(obs / 100 + step / 100 * 1.0 for step in range(1))
    assert torch.allclose(found.reward[0, :, 0][used], reward[used])


def test_an_offline_run_learns_without_a_step_of_the_environments(stored: Path, tmp_path: Path) -> None:
    data = pendulum_data(stored)
    model = fitted(tmp_path, data, normalize_obs=True)

    assert model.updates == 40 and model.env_steps == 40
    assert int(data.dataset.replay.ring.counts[0]) == 60  # 120 steps in two rows, nothing was collected
    assert model.obs_normalizer is not None and model.obs_normalizer.mean[0] > 50  # of the stored observations


def test_the_run_collects_after_its_offline_steps(stored: Path, tmp_path: Path) -> None:
    data = pendulum_data(stored, offline_steps=24)
    model = fitted(tmp_path, data)

    assert model.updates == 40 and int(data.dataset.replay.ring.counts[0]) == 60 + (40 - 24) // 2


@pytest.mark.parametrize("resume_at", [10, 30], ids=["offline", "online"])
def test_a_resumed_run_equals_one_that_went_on(stored: Path, tmp_path: Path, resume_at: int) -> None:
    whole = fitted(tmp_path / "whole", pendulum_data(stored, offline_steps=20))
    fitted(tmp_path / "part", pendulum_data(stored, offline_steps=20, total_env_steps=resume_at))
    (last,) = (tmp_path / "part").rglob("last.ckpt")

    rest = fitted(tmp_path / "rest", pendulum_data(stored, offline_steps=20), ckpt_path=last)

    assert rest.updates == whole.updates
    if resume_at < 20:  # Pendulum cannot save its state
        assert int(rest.data.dataset.replay.ring.counts[0]) == int(whole.data.dataset.replay.ring.counts[0])


def test_dqn_learns_from_stored_episodes_by_priority(tmp_path: Path) -> None:
    played = [episode(30, 1.0 * number, ends="terminated", size=4) for number in range(4)]
    for each in played:
        each["action"] = torch.randint(2, (30,))
    write_trajectories(tmp_path / "trajectories.npz", played)
    sizes: dict[str, Any] = {"num_envs": 4, "batch_size": 8, "replay_ratio": 4, "capacity": 400, "eval_episodes": 2}
    data = OfflineReplayDataModule(
        str(tmp_path / "trajectories.npz"), "CartPole-v1", total_env_steps=80, priority_alpha=0.6, n_step=2, **sizes
    )
    lightning.seed_everything(1, verbose=False)
    model = DQN(data.spaces)

    trainer(tmp_path, RunCheckpoint()).fit(model, datamodule=data)

    assert model.updates == 40 and data.dataset.replay.priorities.levels[0].count_nonzero() > 100


def test_rows_of_one_rollout_hold_all_steps_in_order(stored: Path) -> None:
    data = pendulum_data(stored)
    example = fitted_example(data)

    rollout = rollout_of(read_episodes(stored), example, "stored")

    assert rollout.obs.shape == (61, 2, 3) and rollout.reward.shape == (60, 2)
    assert rollout.truncated.sum() == 4 and rollout.terminated.sum() == 2 and rollout.episode_start.sum() == 6
    assert rollout.final_step.max() == 59 and sorted(rollout.final_obs[rollout.final_step >= 0][:, 0].tolist()) == [
        20.0, 220.0, 320.0, 520.0,
    ]  # fmt: skip


def fitted_example(data: OfflineReplayDataModule) -> Any:
    """A rollout of the environments."""
    from datamodules.collect.collector import RolloutCollector
    from datamodules.vector.make_env import make_vector_env

    model = SAC(data.spaces)
    envs = make_vector_env("Pendulum-v1", 2, backend="sync", device=torch.device("cpu"))
    collector = RolloutCollector(envs, model, 1, torch.Generator(), "Pendulum-v1")
    collector.reset(1)
    return collector.collect()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"capacity": 100}, "holds 120 steps, and data.capacity is 100: raise it to at least 124"),
        ({"env": "MountainCarContinuous-v0"}, r"shapes \[\(3,\), \(1,\)\], and the environment has \[\(2,\), \(1,\)\]"),
        ({"num_envs": 128, "replay_ratio": 16}, "fewer than data.num_envs"),
    ],
)
def test_a_dataset_that_does_not_fit_is_refused(stored: Path, tmp_path: Path, changes: dict, why: str) -> None:
    env = changes.pop("env", "Pendulum-v1")
    sizes: dict[str, Any] = {"num_envs": 2, "batch_size": 16, "replay_ratio": 16, "capacity": 400, "backend": "sync"}
    data = OfflineReplayDataModule(str(stored), env, total_env_steps=400, **{**sizes, **changes})

    with pytest.raises(ConfigurationError, match=why):
        fitted(tmp_path, data)


def test_values_that_cannot_be_are_refused(stored: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no file none\.npz: .* or name a Minari dataset"):
        pendulum_data("none.npz")
    with pytest.raises(ConfigurationError, match=r"data\.offline_steps is 0"):
        pendulum_data(stored, offline_steps=0)
    with pytest.raises(
        ConfigurationError, match=r"sequence_length is 4, but stored episodes hold no states .*: set it"
    ):
        pendulum_data(stored, sequence_length=4, burn_in=2)


def test_a_file_without_rewards_is_refused(stored: Path, tmp_path: Path) -> None:
    with np.load(stored) as file:
        columns = {name: file[name] for name in ("obs", "action", "episode_start", "obs_start")}
    np.savez(tmp_path / "bare.npz", **columns)

    with pytest.raises(ConfigurationError, match=r"bare\.npz holds no rewards"):
        fitted(tmp_path, pendulum_data(tmp_path / "bare.npz"))


def test_a_minari_dataset_holds_the_same_episodes(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py", reason="needs minari[hdf5]")
    minari = pytest.importorskip("minari", reason="needs minari[hdf5]")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    expected = read_episodes(stored)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=expected.obs[a : b + 1 + 0].numpy(),
            actions=expected.action[c:d].numpy(),
            rewards=expected.reward[c:d].tolist(),
            terminations=expected.terminated[c:d].tolist(),
            truncations=expected.truncated[c:d].tolist(),
        )
        for a, b, c, d in zip(
            expected.obs_start[:-1].tolist(),
            (expected.obs_start[1:] - 1).tolist(),
            expected.episode_start[:-1].tolist(),
            expected.episode_start[1:].tolist(),
            strict=True,
        )
    ]
    minari.create_dataset_from_buffers("pendulum/test-v0", buffers, env="Pendulum-v1")

    found = read_episodes("minari:pendulum/test-v0")

    assert all(torch.equal(one.double(), other.double()) for one, other in zip(found, expected, strict=True))
    assert fitted(tmp_path, pendulum_data("minari:pendulum/test-v0")).updates == 40
    with pytest.raises(ConfigurationError, match=r"minari dataset pendulum/none-v0 cannot be read|Minari dataset"):
        read_episodes("minari:pendulum/none-v0")


def test_minari_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ConfigurationError, match="needs Minari: pip install"):
        read_episodes("minari:mujoco/hopper/expert-v0")


def test_equal_seeds_give_equal_weights(stored: Path, tmp_path: Path) -> None:
    one, other = (fitted(tmp_path / name, pendulum_data(stored, offline_steps=20)) for name in "ab")

    assert weights_hash(one) == weights_hash(other)
