"""Auxiliary losses: without one nothing changes, each acts on the gradient, and runs resume and compile exactly."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.performance.compile import Compile
from datamodules.core.errors import ConfigurationError
from modules.base.hparams import load_algorithm
from modules.ppo.auxiliary.base import AuxiliaryLoss
from modules.ppo.auxiliary.contrastive import InfoNCELoss
from modules.ppo.auxiliary.kickstart import KickstartLoss
from modules.ppo.auxiliary.l2_init import L2InitLoss
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt
from tests.support.auxiliary_runs import RECURRENT, every_loss, fit, six_iterations
from tests.support.small_runs import snake_data, trainer, weights_hash

MAKE: dict[str, Callable[[Path], AuxiliaryLoss]] = {
    "kickstart": lambda teachers: KickstartLoss([str(teachers / "plain.ckpt")]),
    "contrastive": lambda teachers: InfoNCELoss(),
    "l2_init": lambda teachers: L2InitLoss(1e-2),
}
NETWORK: dict[str, dict[str, Any]] = {"plain": {}, "recurrent": RECURRENT}
NETWORKS = pytest.mark.parametrize("network", NETWORK.values(), ids=NETWORK)


@cache
def without_losses(name: str) -> PPO:
    """A run that has no list of losses."""
    return fit(Path(), trainer_manual_backward=False, **NETWORK[name])


@pytest.mark.parametrize("name", NETWORK)
def test_an_empty_list_and_losses_of_coefficient_zero_leave_the_weights_as_they_are(
    tmp_path: Path, teachers: Path, name: str
) -> None:
    silent = KickstartLoss([str(teachers / "plain.ckpt")], action_coef=0.0, value_coef=0.0)

    empty = fit(tmp_path, trainer_manual_backward=False, losses=[], **NETWORK[name])
    zero = fit(tmp_path, losses=[silent], **NETWORK[name])

    assert weights_hash(empty) == weights_hash(zero) == weights_hash(without_losses(name))


@pytest.mark.parametrize("network", NETWORK)
@pytest.mark.parametrize("name", MAKE)
def test_each_loss_changes_the_weights_and_logs_its_metrics(
    tmp_path: Path, teachers: Path, name: str, network: str
) -> None:
    loss, plain = MAKE[name](teachers), without_losses(network)

    model = fit(tmp_path, losses=[loss], **NETWORK[network])

    assert weights_hash(model) != weights_hash(plain)
    tags = {f"{loss.name}/{metric}" for metric in loss.metrics}
    assert tags <= set(model.last_logged) and not tags & set(plain.last_logged)
    assert {"train/entropy", "train/grad_norm", "train/explained_variance"} <= set(model.last_logged)


@pytest.mark.parametrize(("network", "lag"), [({}, 0), (RECURRENT, 0), (RECURRENT, 1)])
def test_resume_equals_the_uninterrupted_run_bit_for_bit(
    tmp_path: Path, teachers: Path, network: dict[str, Any], lag: int
) -> None:
    losses, path = (lambda: every_loss(teachers)), tmp_path / "k.ckpt"
    data = lambda: six_iterations(policy_lag=lag)  # noqa: E731
    whole = fit(tmp_path, losses=losses(), data=data(), **network)
    fit(tmp_path, SaveAt(4, path, stop=True), losses=losses(), data=data(), **network)

    resumed = fit(tmp_path, losses=losses(), data=data(), ckpt_path=path, **network)

    assert weights_hash(resumed) == weights_hash(whole)
    assert resumed.last_logged["kickstart/share"] == whole.last_logged["kickstart/share"]


@NETWORKS
def test_the_compiled_loss_is_one_graph_and_equals_the_eager_one(
    tmp_path: Path, teachers: Path, network: dict[str, Any]
) -> None:
    eager = fit(tmp_path, losses=every_loss(teachers), **network)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        compiled = fit(tmp_path, Compile("default", backend="eager"), losses=every_loss(teachers), **network)

    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_losses_can_be_added_and_left_out_when_a_run_is_resumed(tmp_path: Path, teachers: Path) -> None:
    with_losses, without = tmp_path / "with.ckpt", tmp_path / "without.ckpt"
    fit(tmp_path, SaveAt(4, with_losses, stop=True), losses=every_loss(teachers))
    fit(tmp_path, SaveAt(4, without, stop=True))

    assert fit(tmp_path, losses=every_loss(teachers), ckpt_path=without).env_steps == 768
    assert fit(tmp_path, ckpt_path=with_losses).env_steps == 768


def test_an_agent_is_loaded_without_its_teachers(tmp_path: Path) -> None:
    losses, path = every_loss(tmp_path), tmp_path / "k.ckpt"
    model = fit(tmp_path, SaveAt(6, path), losses=losses)
    for file in ("plain.ckpt", "recurrent.ckpt"):
        (tmp_path / file).unlink()

    agent = load_algorithm(path)

    assert weights_hash(agent) == weights_hash(model) and not agent.auxiliary_losses


def test_a_class_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has 2 losses named l2_init: list each class once"):
        PPO(snake_data().spaces, auxiliary_losses=[L2InitLoss(), L2InitLoss()])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: L2InitLoss(0.0), "coef is 0.0; it must be positive"),
        (lambda: InfoNCELoss(num_negatives=1), "InfoNCELoss has num_negatives .*; choose at least 2.$"),
        (lambda: InfoNCELoss(gamma=1.0), "InfoNCELoss has gamma .*; choose a number between 0 and 1.$"),
        (lambda: KickstartLoss([]), "has no teachers"),
        (
            lambda: KickstartLoss(["x.ckpt"], value_coef=-1.0),
            "KickstartLoss has value_coef -1.0; choose at least 0.$",
        ),
        (
            lambda: KickstartLoss(["x.ckpt"], anneal_env_steps=0),
            "KickstartLoss has anneal_env_steps 0; choose at least 1, or null.$",
        ),
    ],
)
def test_a_value_out_of_range_is_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        make()


def test_initial_weights_of_other_networks_are_refused(tmp_path: Path) -> None:
    data, model = snake_data(), PPO(snake_data().spaces, auxiliary_losses=[L2InitLoss()])
    model.auxiliary_losses.load_state_dict({"l2_init": {"actor.linear.weight": torch.zeros(1)}})
    with pytest.raises(ConfigurationError, match="initial weights of other networks"):
        trainer(tmp_path).fit(model, datamodule=data)
