"""What the Trainer, its callbacks and loggers cannot do is refused in one sentence."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonargparse import Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CometLogger

from app.cli.trainer_settings import check_settings, missing, one_sentence
from datamodules.core.errors import ConfigurationError
from tests.support.small_runs import cartpole_data, fitted


def settings(seed: int = 1, **trainer: Any) -> Namespace:
    return Namespace(seed_everything=seed, trainer=Namespace(**trainer))


@pytest.mark.parametrize(("key", "value"), [("gradient_clip_val", 1.0), ("gradient_clip_val", 1)])
def test_lightnings_clipping_is_refused_with_what_replaces_it(key: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"`--trainer.{key}` does not act .*: use `--model.max_grad_norm`\.$"):
        check_settings(settings(**{key: value}))


@pytest.mark.parametrize(
    ("model", "data", "cure"),
    [
        ("PPO", {"rollout_length": 8}, "use fewer `--model.num_minibatches` for larger ones"),
        ("PQN", {"rollout_length": 8}, "use fewer `--model.num_minibatches` for larger ones"),
        ("DQN", {"batch_size": 32}, "use a larger `--data.batch_size`"),
        ("SAC", {"batch_size": 32}, "use a larger `--data.batch_size`"),
        ("ActiveDynamics", {"batch_size": 32}, "use a larger `--data.batch_size`"),
        ("Mine", {}, "let the algorithm's own `update` use larger minibatches"),
    ],
)
def test_accumulation_is_refused_with_the_setting_of_the_algorithm(model: str, data: Any, cure: str) -> None:
    parts = {"num_minibatches": 4} if model in ("PPO", "PQN") else {}
    given = settings(accumulate_grad_batches=2)
    given.model, given.data = Namespace(init_args=Namespace(**parts)), Namespace(init_args=Namespace(**data))

    with pytest.raises(ConfigurationError, match=re.escape(f"step by themselves: {cure}.")):
        check_settings(given)


def test_settings_without_effect_are_taken() -> None:
    check_settings(settings(gradient_clip_val=0, accumulate_grad_batches=1, callbacks=None))


@pytest.mark.parametrize("seed", [-5, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"`--seed_everything` is {seed}; it must lie between 0 and 4294967295\.$"
    ):
        check_settings(settings(seed))


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ({"accelerator": "cpu", "devices": -1}, r"`--trainer.devices` is -1, .* on the CPU, .*: set it to 1 or more\."),
        ({"accelerator": "cpu", "devices": "0"}, r"`--trainer.devices` is 0, .*: set it to 1 or more\."),
        ({"accelerator": "cpu", "devices": "None"}, r"`--trainer.devices` is None, .*: set it to 1 or more\."),
        ({"accelerator": "cpu", "devices": [0, 0]}, r"`--trainer.devices` is \[0, 0\], .*: set it to 1 or more\."),
        ({"accelerator": "tpu"}, "`--trainer.accelerator` is tpu, .*: use auto, cpu or gpu"),
        ({"strategy": "ddp_spawn_find_unused_parameters_true"}, "`--trainer.strategy` ddp_spawn .*: use ddp"),
        ({"log_every_n_steps": 0}, "`--trainer.log_every_n_steps` is 0; .* at least 1: .* `--trainer.logger false`"),
        ({"log_every_n_steps": -1}, "`--trainer.log_every_n_steps` is -1; .* at least 1"),
        ({"val_check_interval": 0}, "`--trainer.val_check_interval` is 0; .* at least 1: .*limit_val_batches 0"),
        ({"val_check_interval": "soon"}, "`--trainer.val_check_interval` is soon; write a time as days:hours"),
        ({"max_time": "3"}, "`--trainer.max_time` is 3; write a time as days:hours:minutes:seconds"),
        ({"num_sanity_val_steps": -2}, "`--trainer.num_sanity_val_steps` is -2; it must be at least -1"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused_by_its_key(trainer: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{said}"):
        check_settings(settings(**trainer))


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="it is available here")
def test_an_accelerator_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^`--trainer.accelerator` is mps, but .*: use auto or cpu"):
        check_settings(settings(accelerator="mps"))


@pytest.mark.parametrize("devices", ["auto", 1, "2"])
def test_processes_on_a_cpu_are_taken(devices: int | str) -> None:
    check_settings(settings(accelerator="cpu", devices=devices, max_time="00:00:10:00", val_check_interval=3))


@pytest.mark.parametrize("setting", [{"max_steps": -5}, {"limit_val_batches": 2.5}], ids=str)
def test_what_lightning_refuses_is_refused_in_its_words(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(setting))), one_sentence():
        Trainer(**{"logger": False, "accelerator": "cpu"} | setting)


def test_evaluations_can_be_due_after_a_time(tmp_path: Path) -> None:
    module = fitted(tmp_path, cartpole_data(), check_val_every_n_epoch=None, val_check_interval="00:00:00:00")

    assert module.trainer.callback_metrics["eval/episodes"] == 4


def test_a_logger_without_its_package_names_it() -> None:
    with pytest.raises(ConfigurationError, match="comet"), one_sentence():
        CometLogger(offline_directory=".")


def test_a_missing_package_comes_with_the_command_that_installs_it() -> None:
    assert missing(ModuleNotFoundError("No module named 'comet_ml'", name="comet_ml")).endswith("pip install comet_ml.")


def test_an_error_of_the_users_code_keeps_its_traceback() -> None:
    with pytest.raises(TypeError), one_sentence():
        raise TypeError("mine")
