"""Gradients of microbatches add up to that of the minibatch, and errors of memory name what would fit."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from modules.networks import LSTM, MLP
from modules.optim.optimizer_group import OptimizerGroup
from modules.ppo.auxiliary.contrastive import InfoNCELoss
from modules.ppo.batch import NormalizedAdvantage, PPOBatch, PPOLoss
from modules.ppo.ppo import PPO
from tests.modules.ppo.test_ppo_recurrent import model_and_rollouts
from tests.support.small_runs import small_ppo, snake_data, trainer

NETWORKS: dict[str, Any] = {"feed-forward": MLP, "recurrent": partial(LSTM, hidden=16, encoder=())}
EVERY_ADVANTAGE = pytest.mark.parametrize("advantage", ["gae", "vtrace"])


def gradients(name: str, number: int, optimizer: Any, **settings: Any) -> tuple[list[Tensor], Tensor, Tensor]:
    """The gradients of one minibatch with invalid steps, its metrics and its values, after some earlier steps."""
    torch.manual_seed(1)
    options = {"settings": {"num_microbatches": number, "entropy_coef": 0.1, "max_grad_norm": 100.0, **settings}}
    model, rollouts = model_and_rollouts("CartPole-v1", 6, network=NETWORKS[name], **options)
    rollout = next(rollout for rollout in rollouts if not rollout.valid.all())
    with torch.no_grad():
        batch = model.prepare(rollout)
        for parameter in model.parameters():  # the ratio is no longer 1
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.optim = OptimizerGroup([optimizer(model.parameters())])
    metrics, values = model.train_minibatch(batch)
    flat = model.optim.flat.get(model.optim.each[0])
    found = [parameter.grad for parameter in model.parameters()] if flat is None else flat.grad_views
    return [each for each in found if each is not None], metrics, values


@EVERY_ADVANTAGE
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("number", [2, 8])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Adafactor])
def test_the_gradient_of_a_minibatch_is_that_of_its_microbatches(
    advantage: str, name: str, number: int, optimizer: Any
) -> None:
    whole, pieces = (gradients(name, each, optimizer, advantage=advantage) for each in (1, number))
    assert len(whole[0]) > 0
    for expected, found in zip(whole[0], pieces[0], strict=True):
        assert float((found - expected).norm()) <= 1e-6 * max(1.0, float(expected.norm()))
    torch.testing.assert_close(pieces[1], whole[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pieces[2], whole[2], rtol=1e-5, atol=1e-6)


class Small(PPO):
    """Has memory for the gradients of `room` transitions."""

    room = 8

    def loss(self, batch: PPOBatch, normalized: NormalizedAdvantage | None = None) -> PPOLoss:
        if batch.advantage.numel() > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().loss(batch, normalized)


@pytest.mark.parametrize(
    ("room", "settings", "sentence"),
    [
        (
            8,
            {},
            r"gradient of 32 transitions.*memory of cpu: set model\.num_microbatches to 4, which takes 8 at a time",
        ),
        (
            8,
            {"num_microbatches": 2},
            r"gradient of 16 .*num_microbatches to 4, .*model\.num_minibatches.*rollout_length",
        ),
        (8, {"priority_alpha": 0.5}, r"gradient of 32 .*num_microbatches to 4, which takes 8 at a time"),
        (0, {}, r"gradient of 32 transitions.*: use a smaller model\.network, or raise model\.num_minibatches"),
    ],
)
def test_an_error_of_memory_names_the_settings_and_the_size_that_fits(
    tmp_path: Path, room: int, settings: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Small, "room", room)
    data = snake_data(total_env_steps=128)
    model = Small(data.spaces, num_minibatches=4, **settings)
    with pytest.raises(ConfigurationError, match=sentence):
        trainer(tmp_path).fit(model, datamodule=data)


def test_an_error_of_memory_names_the_minibatches_that_fit_if_a_loss_needs_whole_ones(tmp_path: Path) -> None:
    data = snake_data(total_env_steps=128)
    model, fitting = (Small(data.spaces, num_minibatches=n, auxiliary_losses=[InfoNCELoss()]) for n in (4, 16))
    with pytest.raises(ConfigurationError, match=r"set model\.num_minibatches to 16, which takes 8 at a ti") as error:
        trainer(tmp_path).fit(model, datamodule=data)
    assert "num_microbatches" not in str(error.value)
    trainer(tmp_path).fit(fitting, datamodule=data)
    assert fitting.updates > 0


def test_the_number_of_microbatches_that_is_named_works(tmp_path: Path) -> None:
    data = snake_data(total_env_steps=128)
    model = Small(data.spaces, num_minibatches=4, num_microbatches=4)
    trainer(tmp_path).fit(model, datamodule=data)
    assert model.updates > 0


def test_other_errors_of_an_update_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = snake_data(total_env_steps=128)
    model = small_ppo(data)

    def failing(batch: PPOBatch) -> Any:
        raise RuntimeError("a device-side assert")

    monkeypatch.setattr(model, "train_minibatch", failing)
    with pytest.raises(RuntimeError, match="device-side assert"):
        trainer(tmp_path, manual_backward=False).fit(model, datamodule=data)
