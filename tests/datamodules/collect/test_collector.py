"""The Collector: steps that are compiled as one leave none out."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor

from datamodules.collect.collector import RolloutCollector
from datamodules.vector.func_vector_env import TensorVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.sync_vector_env import SerialVectorEnv
from modules.ppo.ppo import PPO
from tests.support.counting_env import Counting, CountingTensors
from tests.support.small_runs import fitted, snake_data, trainer
from tests.support.still_policy import Still


class Seen(Callback):
    """Notes how many steps go together, and the clocks of all boards before and after a rollout."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        collector = trainer.datamodule.collector
        collector.reset(3)
        before = collector.state.length
        rollout = collector.collect()
        self.chunk_size, self.steps = collector.chunk_size, collector.state.length - before
        self.ended = (rollout.terminated | rollout.truncated).any(0)


@pytest.mark.parametrize(("rollout_length", "together"), [(8, 2), (7, 1)])
def test_steps_go_together_where_they_fill_the_horizon(tmp_path: Path, rollout_length: int, together: int) -> None:
    seen = Seen()

    model = fitted(tmp_path, snake_data(rollout_length=rollout_length, total_env_steps=16 * rollout_length), seen)

    assert seen.chunk_size == together and model.env_steps == 16 * rollout_length
    assert torch.equal(seen.steps[~seen.ended], torch.full_like(seen.steps[~seen.ended], rollout_length))


@pytest.mark.parametrize("backend", ["device", "sync", "async", "pool"])
def test_a_rollout_holds_what_the_environments_showed_and_paid(tmp_path: Path, backend: str) -> None:
    """A count goes up by one a step, or two, and pays itself; it starts at 0 in every episode."""
    env, place = ("CountingTensors", 0) if backend == "device" else ("Counting", 1)
    data = snake_data(
        env=f"tests.support.counting_env.{env}", env_kwargs={}, backend=backend, num_envs=3, rollout_length=4
    )
    rollouts = []

    class Looks(PPO):
        def after_update(self, collected: Any) -> None:
            rollouts.append(
                {name: value.clone() for name, value in collected._asdict().items() if isinstance(value, Tensor)}
            )

    lightning.seed_everything(1, verbose=False)
    trainer(tmp_path, max_steps=3).fit(Looks(data.spaces, num_minibatches=2), datamodule=data)

    for rollout in rollouts:
        shown, ended = rollout["obs"][..., place], rollout["terminated"] | rollout["truncated"]
        step = 1 + rollout["action"] if backend == "device" else 1
        assert torch.equal(rollout["reward"], shown[:-1] + step)
        assert torch.equal(shown[1:], torch.where(ended, 0, rollout["reward"]))
        assert torch.equal(ended, rollout["reward"] >= 4) and not rollout["truncated"].any()
        assert torch.equal(rollout["episode_start"], shown[:-1] == 0) and rollout["valid"].all()
    assert len(rollouts) == 3


@pytest.mark.parametrize("rollout_length", [4, 5, 7, 9])
def test_episodes_count_with_their_whole_return_and_length_wherever_rollouts_cut_them(
    tmp_path: Path, rollout_length: int
) -> None:
    data = snake_data(
        env="tests.support.counting_env.Counting", env_kwargs={"length": 7}, backend="sync", num_envs=2,
        rollout_length=rollout_length, total_env_steps=2 * 63 * rollout_length,
    )  # fmt: skip
    totals = []

    class Adds(PPO):
        def after_update(self, collected: Any) -> None:
            totals.append(dict(zip(collected.episodes.names, collected.episodes.values.tolist(), strict=True)))

    trainer(tmp_path, max_steps=8).fit(Adds(data.spaces, num_minibatches=1, update_epochs=1), datamodule=data)

    assert all((each["length"], each["return"]) == (7 * each["count"], 28 * each["count"]) for each in totals)
    assert sum(each["count"] for each in totals) == 2 * (8 * rollout_length // 7)


@pytest.mark.parametrize("rollout_length", [1, 3, 7, 21])
def test_episodes_of_rows_that_end_apart_count_whole(rollout_length: int) -> None:
    rows = SerialVectorEnv([partial(Counting, length=3), partial(Counting, length=7)])
    envs = GymnasiumVectorAdapter(rows, device=torch.device("cpu"))
    collector = RolloutCollector(envs, Still(), rollout_length, torch.Generator(), "Counting")
    collector.reset(0)

    totals = sum(collector.collect().episodes.values.clone() for _ in range(21 // rollout_length))

    assert isinstance(totals, Tensor) and totals.tolist() == [10, 7 * 6 + 3 * 28, 42]


def test_values_of_an_episode_count_at_its_end_only() -> None:
    envs = TensorVectorEnv(CountingTensors(length=3), 2, device=torch.device("cpu"), seed=0)
    collector = RolloutCollector(envs, Still(), 3, torch.Generator(), "CountingTensors")
    collector.reset(0)

    count, *_, value = collector.collect().episodes.values.tolist()

    assert (count, value) == (2, 6)
