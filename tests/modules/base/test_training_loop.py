"""The loop: no lag, honest counters, the same weights from the same seed, the same run after a resume."""

import logging
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Rollout
from modules.ppo.ppo import PPO, PPOBatch
from tests.support.small_runs import cartpole_data, fitted, small_ppo, snake_data, trainer, weights_hash


class Spy(PPO):
    """Notes the policy's version when acting and when learning, and the ratio of every first minibatch."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.acted: list[int] = []
        self.prepared: list[tuple[int, int]] = []
        self.first_ratio: list[Tensor] = []
        self.first = True

    def act(self, *args: Any, **kwargs: Any) -> Any:
        self.acted.append(self.updates)
        return super().act(*args, **kwargs)

    def prepare(self, rollout: Rollout) -> PPOBatch:
        self.prepared.append((min(self.acted), max(self.acted)))
        self.acted.clear()
        self.first = True
        return super().prepare(rollout)

    def loss(self, batch: PPOBatch) -> Any:
        if self.first:
            features, _ = self.network(self.normalized(batch.obs), {}, torch.zeros(len(batch.obs), dtype=torch.bool))
            self.first_ratio.append((self.actor(features).log_prob(batch.action) - batch.log_prob).exp())
            self.first = False
        return super().loss(batch)


def spied(root: Path, data: Any, **changes: Any) -> Spy:
    lightning.seed_everything(1, verbose=False)
    settings = {
        "update_epochs": 2,
        "num_minibatches": 4,
        "normalize_obs": True,
        "normalize_reward": True,
        "learning_rate": 1e-2,
    }
    model = Spy(data.spaces, **settings)
    trainer(root, **changes).fit(model, datamodule=data)
    return model


class Fetcher(Callback):
    """Notes the length that Lightning's data fetcher knows; None would mean that it prefetches."""

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        self.length = trainer.fit_loop._data_fetcher.length


def test_lag_is_zero_the_policy_that_collected_batch_n_has_seen_exactly_n_updates(tmp_path: Path) -> None:
    model = spied(tmp_path, snake_data())
    assert model.prepared == [(8 * n, 8 * n) for n in range(10)]


def test_the_loader_is_sized_so_that_lightning_does_not_prefetch(tmp_path: Path) -> None:
    fetcher = Fetcher()
    fitted(tmp_path, snake_data(), fetcher)
    assert fetcher.length == 10


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data])
def test_global_step_counts_iterations_and_env_steps_and_updates_are_counted_apart(
    tmp_path: Path, make_data: Any
) -> None:
    data = make_data()
    model = fitted(tmp_path, data)
    assert model.global_step == data.iterations == 10
    assert model.env_steps == data.total_env_steps
    assert model.updates == 10 * 2 * 4


@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", 1e-6), ("bf16-mixed", 2e-2)])
def test_the_first_minibatch_of_the_first_pass_has_ratio_one(tmp_path: Path, precision: str, tolerance: float) -> None:
    model = spied(tmp_path, snake_data(), precision=precision)
    assert max(float((ratio - 1).abs().max()) for ratio in model.first_ratio) <= tolerance


def test_phantom_rows_are_masked_where_the_vector_env_is_next_step(tmp_path: Path) -> None:
    data = cartpole_data(backend="vector", num_envs=8, total_env_steps=1280)
    model = spied(tmp_path, data)
    assert data.total_env_steps <= model.env_steps < data.total_env_steps + data.steps_per_iteration
    assert model.global_step == 11 and model.progress == 1
    assert max(float((ratio - 1).abs().max()) for ratio in model.first_ratio) <= 1e-6


def test_bf16_mixed_learns_and_does_not_reuse_stale_weights(tmp_path: Path) -> None:
    model = spied(tmp_path, snake_data(), precision="bf16-mixed")
    kl = model.last_logged["train/approx_kl"]
    assert kl > 1e-6  # weights cast once and cached would leave the ratio at one in every pass


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data])
def test_the_same_seed_twice_gives_identical_weights(tmp_path: Path, make_data: Any) -> None:
    assert weights_hash(fitted(tmp_path, make_data())) == weights_hash(fitted(tmp_path, make_data()))


class Batches(PPO):
    """Notes whether each batch carries a mask of valid rows."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.masked: list[bool] = []

    def prepare(self, rollout: Rollout) -> PPOBatch:
        batch = super().prepare(rollout)
        self.masked.append(batch.valid is not None)
        return batch


class SaveAt(Callback):
    """Saves a checkpoint after an iteration, as ModelCheckpoint does, and can stop the run there."""

    def __init__(self, iteration: int, path: Path, stop: bool = False):
        self.iteration, self.path, self.stop = iteration, path, stop

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration:
            trainer.save_checkpoint(self.path, weights_only=False)
            trainer.should_stop = self.stop


class Curve(Callback):
    """Keeps every logged value with its env steps."""

    def __init__(self) -> None:
        self.points: dict[int, dict[str, float]] = {}

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step % trainer.log_every_n_steps == 0 or pl_module.progress == 1:
            self.points[pl_module.env_steps] = dict(pl_module.last_logged)


@pytest.mark.parametrize("iteration", [1, 4, 9])
def test_resume_after_k_of_n_iterations_equals_the_uninterrupted_run_bit_for_bit(
    tmp_path: Path, iteration: int
) -> None:
    path, whole, rest = tmp_path / "k.ckpt", Curve(), Curve()
    uninterrupted = fitted(tmp_path, snake_data(), whole)
    fitted(tmp_path, snake_data(), SaveAt(iteration, path, stop=True))
    resumed = fitted(tmp_path, snake_data(), rest, ckpt_path=path)
    assert weights_hash(resumed) == weights_hash(uninterrupted)
    assert (resumed.env_steps, resumed.updates) == (uninterrupted.env_steps, uninterrupted.updates)
    assert {steps: whole.points[steps] for steps in rest.points} == rest.points
    assert rest.points


class SaveAtTheEnd(Callback):
    """Saves a checkpoint when the run is over."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("save", [lambda path: SaveAt(10, path), SaveAtTheEnd])
def test_a_finished_run_can_be_extended(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "end.ckpt"
    whole = fitted(tmp_path, snake_data(total_env_steps=1920), learning_rate_schedule="constant")
    fitted(tmp_path, snake_data(), save(path), learning_rate_schedule="constant")
    longer = fitted(tmp_path, snake_data(total_env_steps=1920), ckpt_path=path, learning_rate_schedule="constant")
    assert (longer.global_step, longer.env_steps) == (15, 1920)
    assert weights_hash(longer) == weights_hash(whole)


def test_resuming_a_gymnasium_environment_says_that_its_episodes_begin_anew(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "k.ckpt"
    fitted(tmp_path, cartpole_data(), SaveAt(4, path))
    caplog.set_level("INFO", "lightning.pytorch")
    logging.getLogger("lightning.pytorch").addHandler(caplog.handler)
    resumed = fitted(tmp_path, cartpole_data(), ckpt_path=path)
    logging.getLogger("lightning.pytorch").removeHandler(caplog.handler)
    assert resumed.global_step == 10
    assert any("resets its environments" in record.message for record in caplog.records)


def test_an_optimizers_options_are_the_configurations_also_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "k.ckpt"
    fitted(tmp_path, snake_data(), SaveAt(4, path))
    data = snake_data()
    model = small_ppo(data, optimizer=lambda params: torch.optim.Adam(params, weight_decay=0.5))
    trainer(tmp_path).fit(model, datamodule=data, ckpt_path=path, weights_only=True)
    assert model.raw_optimizers[0].param_groups[0]["weight_decay"] == 0.5


def test_environments_of_another_shape_do_not_resume(tmp_path: Path) -> None:
    path = tmp_path / "k.ckpt"
    fitted(tmp_path, snake_data(), SaveAt(4, path))
    larger = {"dim": 8, "distance_to_border": 2, "observation": "features"}
    with pytest.raises(ConfigurationError, match="have states of another shape"):
        fitted(tmp_path, snake_data(env_kwargs=larger), ckpt_path=path)


def test_a_second_fit_of_the_same_data_begins_anew(tmp_path: Path) -> None:
    data = snake_data()
    assert weights_hash(fitted(tmp_path, data)) == weights_hash(fitted(tmp_path, data))


def test_phantoms_are_masked_by_what_the_environments_are_not_by_what_a_rollout_holds(tmp_path: Path) -> None:
    data = cartpole_data(backend="vector", num_envs=8, rollout_length=4, total_env_steps=64)
    model = Batches(data.spaces, num_minibatches=1)
    trainer(tmp_path).fit(model, datamodule=data)
    assert all(model.masked)


def test_evaluation_does_not_disturb_training(tmp_path: Path) -> None:
    without = fitted(tmp_path, snake_data())
    evaluated = fitted(tmp_path, snake_data(), val_check_interval=2)
    assert "eval/return_mean" in evaluated.last_logged
    assert weights_hash(without) == weights_hash(evaluated)


def test_minibatches_that_do_not_divide_the_rollout_are_refused_with_those_that_would(tmp_path: Path) -> None:
    data = snake_data()
    model = PPO(data.spaces, num_minibatches=7)
    with pytest.raises(
        ConfigurationError, match=r"minibatches is 7.*128 transitions.*the nearest that do are \[1, 2, 4, 8\]"
    ):
        trainer(tmp_path).fit(model, datamodule=data)


def test_a_horizon_longer_than_the_time_limit_is_refused_on_the_device_path(tmp_path: Path) -> None:
    data = snake_data(rollout_length=4096, num_envs=2)
    with pytest.raises(ConfigurationError, match=r"set data\.rollout_length to at most"):
        trainer(tmp_path).fit(small_ppo(data), datamodule=data)


def test_a_pool_in_halves_collects_what_sync_collects(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rollout_length": 64, "total_env_steps": 1280}
    sync, pool = (fitted(tmp_path, cartpole_data(backend=backend, **settings)) for backend in ("sync", "pool"))
    assert pool.last_logged["rollout/return_mean"] == sync.last_logged["rollout/return_mean"]
    difference = [
        float((a - b).detach().abs().max()) for a, b in zip(pool.parameters(), sync.parameters(), strict=True)
    ]
    assert max(difference) < 1e-5  # the same, but for rows that are multiplied in other batches


@pytest.mark.parametrize("name", ["num_envs", "rollout_length", "total_env_steps", "eval_episodes"])
def test_a_size_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"data.{name} is 0; it must be at least 1"):
        snake_data(**{name: 0})


def test_a_checkpoint_makes_its_module_again_with_no_environment_and_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "end.ckpt"
    model = fitted(tmp_path, snake_data(), SaveAt(10, path))
    loaded = PPO.load_from_checkpoint(path, weights_only=True)
    assert weights_hash(loaded) == weights_hash(model)
    assert loaded.spaces == model.spaces


def test_normaliser_statistics_travel_in_the_checkpoint_and_are_frozen_in_evaluation(tmp_path: Path) -> None:
    path, data = tmp_path / "end.ckpt", snake_data()
    model = fitted(tmp_path, data, SaveAt(10, path))
    loaded = PPO.load_from_checkpoint(path, weights_only=True)
    before = {name: value.clone() for name, value in loaded.obs_normalizer.state_dict().items()}
    trainer(tmp_path).validate(loaded, datamodule=data, verbose=False)
    assert before["count"] == model.env_steps
    assert all(torch.equal(before[name], value) for name, value in loaded.obs_normalizer.state_dict().items())


@pytest.mark.timeout(600)  # the C++ compiler takes minutes on a machine with other work
def test_a_checkpoint_of_a_compiled_run_loads_uncompiled_and_the_other_way_round(tmp_path: Path) -> None:
    data = snake_data()
    compiled, plain = small_ppo(data), small_ppo(data)
    compiled.network.compile()
    assert list(compiled.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(compiled.state_dict())
    compiled.load_state_dict(plain.state_dict())
