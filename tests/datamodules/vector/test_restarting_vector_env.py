"""Environments in processes that fail and are begun anew: their broken episodes count for nothing."""

import multiprocessing
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.ring_buffer import RingBuffer
from datamodules.collect.alternating import AlternatingCollector
from datamodules.collect.collector import RolloutCollector
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map
from datamodules.core.types import Rollout
from datamodules.env_interface.restart_counter import RestartCounter
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.restarting_vector_env import RestartingVectorEnv
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from tests.support.counting_env import Breaking, Counting, Failing, copied
from tests.support.small_runs import cartpole_data, fitted
from tests.support.still_policy import Still

CPU = torch.device("cpu")
BACKENDS = ("async", "pool")
GOOD = partial(Counting, length=6)


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def restarting(backend: str, *makers: Any, timeout: float = 60.0) -> Any:
    if backend == "pool":
        return WorkerPoolVectorEnv(
            makers, num_workers=len(makers) // 2, device=CPU, timeout=timeout, restart=True, name="Failing"
        )
    envs = RestartingVectorEnv(makers, name="Failing", timeout=timeout)
    return GymnasiumVectorAdapter(envs, device=CPU, name="Failing")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["raise", "die", "hang"])
def test_a_step_that_fails_is_not_valid_and_brings_a_new_episode(backend: str, how: str, tmp_path: Path) -> None:
    timeout = {"pool": 1.5, "async": 4.0}[backend] if how == "hang" else 60.0  # a restart counts for async
    envs = restarting(backend, *[GOOD] * 3, partial(Failing, how, str(tmp_path / "failed")), timeout=timeout)
    envs.reset(0)
    steps = []
    with pytest.warns(UserWarning, match=r"(?s)Restart 1 .*episode is dropped\. .*Environment 3"):
        for _ in range(9):
            steps.append(copied(envs.step(torch.zeros(4, dtype=torch.int64))))
    envs.close()

    obs, valid = (
        torch.stack(column) for column in ([step.obs[:, 1] for step in steps], [step.valid for step in steps])
    )
    assert obs[:, 0].tolist() == [1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert obs[:, 3].tolist() == [1, 2, 0, 1, 2, 3, 4, 5, 0]
    shared = [[3, 1]] if backend == "pool" and how != "raise" else []  # the process of 3 has taken 1 with it
    assert (~valid).nonzero().tolist() == [[2, 3], *shared]
    assert (steps[2].reward.tolist(), steps[2].terminated.any().item()) == ([3, 3, 3, 0], False)
    assert torch.stack([step.terminated for step in steps]).nonzero().tolist() == [
        [5, row] for row in (0, 1, 2) if not (shared and row == 1)
    ] + [[8, 3]]
    assert (envs.restarts.count, envs.restarts.steps) == (1, 36)


def collected(backend: str, file: Path, horizon: int, rollouts: int) -> list[Rollout]:
    envs = restarting(backend, GOOD, partial(Failing, "raise", str(file)))
    kind = AlternatingCollector if backend == "pool" else RolloutCollector
    collector = kind(envs, Still(), horizon, torch.Generator(), "Failing")
    collector.reset(0)
    found = []
    with pytest.warns(UserWarning, match="Restart 1"):
        for _ in range(rollouts):
            found.append(tree_map(torch.clone, collector.collect()))
    envs.close()
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rollout_length", [2, 3, 4, 12])
def test_a_broken_episode_is_cut_before_its_failure_and_not_counted(
    backend: str, rollout_length: int, tmp_path: Path
) -> None:
    rollouts = collected(backend, tmp_path / "failed", rollout_length, 12 // rollout_length)

    valid = torch.cat([rollout.valid for rollout in rollouts])
    assert (~valid).nonzero().tolist() == [[2, 1]]
    count, return_, length = sum(rollout.episodes.values for rollout in rollouts).tolist()
    assert (count, return_, length) == (3, 3 * 21, 18)  # two of the first row, one of the other after its broken one
    assert sum(rollout.env_steps for rollout in rollouts) == 23
    truncated = torch.cat([rollout.truncated for rollout in rollouts])
    cut = (
        [[1, 1]] if rollout_length > 2 else []
    )  # where the failure is a rollout's first step nothing before it reaches it
    assert truncated.nonzero().tolist() == cut
    if cut:
        assert rollouts[0].final_step[:, 1].tolist() == [1]
        assert rollouts[0].final_obs[0, 1, 1] == 2
    resets = torch.cat([rollout.episode_start for rollout in rollouts])
    assert resets.nonzero().tolist() == [[0, 0], [0, 1], [3, 1], [6, 0], [9, 1]]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("rollout_length", [2, 4])
def test_no_window_of_a_replay_reaches_over_a_failure(rollout_length: int, n_step: int, tmp_path: Path) -> None:
    rollouts = collected("async", tmp_path / "failed", rollout_length, 12 // rollout_length)
    ring = RingBuffer(rollouts[0], {}, 16, num_final_slots=8, device=CPU)
    replay = NStepReplayBuffer(ring, n_step, CPU, has_invalid_steps=True)
    for rollout in rollouts:
        replay.write(rollout, {})
        ring.commit_()

    found = replay.sample(replay.noise(4, 500, torch.Generator().manual_seed(0)))

    first, last, counts = found.obs[..., 1], found.next_obs[..., 1], found.loss_weight > 0
    assert counts.all()
    end = first + found.num_steps
    assert torch.equal(found.reward.sum(-1), (end * (end + 1) - first * (first + 1)) / 2)
    assert torch.equal(torch.where(found.terminated, 6.0, last), first + found.num_steps)
    assert found.num_steps.min() == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_evaluation_counts_whole_episodes_only(backend: str, tmp_path: Path) -> None:
    envs = restarting(backend, GOOD, partial(Failing, "raise", str(tmp_path / "failed")))

    with pytest.warns(UserWarning, match="Restart 1"):
        episodes = EvaluationDataset(envs, Still(), 4, seed=0, record=True).run()
    envs.close()

    assert (episodes.episode_return.tolist(), episodes.length.tolist()) == ([21.0] * 4, [6] * 4)
    assert [tape["obs"][:, 1].tolist() for tape in episodes.trajectories] == [[0, 1, 2, 3, 4, 5, 6]] * 4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["raise", "die"])
def test_an_environment_that_always_fails_ends_the_run_in_one_sentence(backend: str, how: str) -> None:
    envs = restarting(backend, GOOD, partial(Failing, how))
    envs.reset(0)

    with (
        pytest.warns(UserWarning),
        pytest.raises(ConfigurationError, match=r"^Failing was restarted more than 3 times within"),
    ):
        for _ in range(40):
            envs.step(torch.zeros(2, dtype=torch.int64))


def test_restarts_far_apart_end_no_run() -> None:
    restarts = RestartCounter("mine", 2)

    with pytest.warns(UserWarning, match="one of them"):
        for _ in range(20):
            restarts.record("one of them")
            restarts.steps += 400

    assert restarts.count == 20


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_breach_of_the_contract_still_ends_the_run(backend: str) -> None:
    envs = restarting(backend, GOOD, partial(Breaking, step=(1, 2)))
    envs.reset(0)

    with pytest.raises(ConfigurationError, match="returned invalid values after its first steps"):
        for _ in range(3):
            envs.step(torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fit_goes_on_and_logs_its_restarts(backend: str, tmp_path: Path) -> None:
    failing = {"how": "raise", "file": str(tmp_path / "failed")}
    data = cartpole_data(
        env="tests.support.counting_env.Failing",
        env_kwargs=failing,
        backend=backend,
        num_envs=2,
        on_env_error="restart",
    )
    measured: list[Any] = []

    class Measuring(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            measured.append(trainer.datamodule.extra_metrics())

    data_before = data.total_env_steps
    with pytest.warns(UserWarning, match="Restart 1"):
        model = fitted(tmp_path, data, Measuring(), limit_val_batches=0)

    assert measured[-1] == {"env/restarts": 1}
    assert model.env_steps >= data_before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"backend": "sync", "on_env_error": "restart"}, "on_env_error is restart, but only .* of backend sync: set"),
        ({"backend": "pool", "on_env_error": "go on"}, "on_env_error is 'go on'; choose stop or restart"),
    ],
    ids=["sync", "unknown"],
)
def test_a_restart_that_cannot_be_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        cartpole_data(**changes)
