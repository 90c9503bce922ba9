"""What the Trainer, its callbacks and loggers cannot do is refused in one sentence."""

from typing import Any

import pytest
from jsonargparse import Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CometLogger

from app.trainer_settings import check_settings, missing, one_sentence
from datamodules.types import UsageError


def settings(seed: int = 1, **trainer: Any) -> Namespace:
    return Namespace(seed_everything=seed, trainer=Namespace(**trainer))


@pytest.mark.parametrize(("key", "value"), [("gradient_clip_val", 1.0), ("gradient_clip_val", 1)])
def test_lightnings_clipping_is_refused_with_what_replaces_it(key: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"`--trainer.{key}` does not act .*: use `--model.max_grad_norm`\.$"):
        check_settings(settings(**{key: value}))


def test_settings_without_effect_are_taken() -> None:
    check_settings(settings(gradient_clip_val=0, accumulate_grad_batches=1, callbacks=None))


@pytest.mark.parametrize("seed", [-5, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(UsageError, match=rf"`--seed_everything` is {seed}; it must lie between 0 and 4294967295\.$"):
        check_settings(settings(seed))


def test_an_average_at_the_ends_of_epochs_is_refused() -> None:
    averaging = Namespace(class_path="lightning.pytorch.callbacks.StochasticWeightAveraging")
    with pytest.raises(UsageError, match="use EMAWeightAveraging"):
        check_settings(settings(callbacks=[averaging]))


@pytest.mark.parametrize("setting", [{"accelerator": "cpu", "devices": -1}, {"accelerator": "tpu"}], ids=str)
def test_a_device_that_is_not_there_is_refused_in_lightnings_words(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError), one_sentence():
        Trainer(logger=False, **setting)


def test_a_logger_without_its_package_names_it() -> None:
    with pytest.raises(UsageError, match="comet"), one_sentence():
        CometLogger(offline_directory=".")


def test_a_missing_package_comes_with_the_command_that_installs_it() -> None:
    assert missing(ModuleNotFoundError("No module named 'comet_ml'", name="comet_ml")).endswith("pip install comet_ml.")


def test_an_error_of_the_users_code_keeps_its_traceback() -> None:
    with pytest.raises(TypeError), one_sentence():
        raise TypeError("mine")
