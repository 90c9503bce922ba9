"""Every optimizer of torch.optim works in every algorithm, or is refused in one sentence."""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim

from datamodules.core.errors import ConfigurationError
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import OptimizerGroup, make_state_of_
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data
from tests.support.replay_fixtures import replay_data
from tests.support.small_runs import cartpole_data, trainer

EVERY = [each for each in vars(optim).values() if isinstance(each, type) and issubclass(each, optim.Optimizer)]
REFUSED = {optim.LBFGS: "evaluates the loss several times", optim.SparseAdam: "sparse", optim.Muon: "only supports 2D"}
KINDS = [each for each in EVERY if each is not optim.Optimizer]
WORKING = [each for each in KINDS if each not in REFUSED]
SMALL: dict[str, Any] = {"network": partial(MLP, hidden=(8,)), "learning_rate": 1e-3}
SOFT: dict[str, Any] = {**SMALL, "network": partial(MLP, hidden=(8,), activation="relu")}
SOFT["critic"] = partial(TwinMLP, hidden=(8,))

MAKE: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "ppo": lambda kind: (PPO((data := cartpole_data(total_env_steps=64)).spaces, optimizer=kind, **SMALL), data),
    "pqn": lambda kind: (
        PQN((data := cartpole_data(total_env_steps=64)).spaces, optimizer=kind, num_minibatches=2, **SMALL),
        data,
    ),
    "dqn": lambda kind: (DQN((data := replay_data(total_env_steps=128)).spaces, optimizer=kind, **SMALL), data),
    "sac": lambda kind: (SAC((data := box_data(total_env_steps=64)).spaces, optimizer=kind, **SOFT), data),
    "options": lambda kind: (
        SACOptions((data := box_data(total_env_steps=64, n_step=1)).spaces, 2, optimizer=kind, **SOFT),
        data,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", MAKE)
def test_it_learns_or_is_refused_in_a_sentence_that_names_alternatives(
    tmp_path: Path, algorithm: str, kind: Any
) -> None:
    model, data = MAKE[algorithm](kind)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    if kind in REFUSED:
        with pytest.raises(ConfigurationError, match=rf"{kind.__name__} .*{REFUSED[kind]}.*choose another, .*AdamW"):
            trainer(tmp_path).fit(model, datamodule=data)
        return

    trainer(tmp_path).fit(model, datamodule=data)

    after = [*model.parameters()]
    assert all(bool(each.isfinite().all()) for each in after)
    assert not all(map(torch.equal, before, after)) and model.updates > 0


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
def test_options_that_a_config_left_behind_work_with_another_class(tmp_path: Path, kind: Any) -> None:
    model, data = MAKE["ppo"](partial(kind, fused=True))
    trainer(tmp_path).fit(model, datamodule=data)
    assert model.updates > 0


@pytest.mark.parametrize("kind", [optim.ASGD, optim.NAdam, optim.Rprop, optim.RAdam, optim.Adadelta, optim.RMSprop])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_state_made_beforehand_is_that_of_the_first_step(kind: Any, groups: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    results = []
    for made in (False, True):
        module = copy.deepcopy(layer)
        parts = module.parameters() if groups == 1 else [{"params": [each]} for each in module.parameters()]
        optimizers = OptimizerGroup([kind(parts, lr=0.01)])
        if made:
            optimizers.make_state_()
            assert optimizers.tensors and all(map(torch.equal, module.parameters(), layer.parameters()))
        for _ in range(3):
            optimizers.step(module(torch.ones(4, 3)).square().sum(), optimizers.each[0], 1.0)
        results.append([*module.parameters(), *optimizers.tensors])
    assert all(map(torch.equal, *results))


def test_what_warming_up_changed_is_put_back_to_the_first_state() -> None:
    layer = nn.Linear(3, 2)
    optimizers = OptimizerGroup([optim.NAdam(layer.parameters(), lr=0.01)])
    optimizers.make_state_()
    first = [tensor.clone() for tensor in optimizers.tensors]

    for _ in range(3):
        optimizers.step(layer(torch.ones(4, 3)).square().sum(), optimizers.each[0], 1.0)
    make_state_of_(optimizers.each[0])

    assert all(map(torch.equal, optimizers.tensors, first))


def test_optimizers_whose_first_state_is_known_are_captured_and_dampened_momentum_is_not() -> None:
    for kind, expected in ((optim.NAdam, True), (optim.ASGD, True), (optim.Rprop, True)):
        assert OptimizerGroup([kind(nn.Linear(1, 1).parameters())]).make_capturable_(torch.device("cpu")) == expected
    dampened = OptimizerGroup([optim.SGD(nn.Linear(1, 1).parameters(), momentum=0.9, dampening=0.5)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not dampened.make_capturable_(torch.device("cpu"))


def test_a_run_is_not_resumed_with_another_optimizer(tmp_path: Path) -> None:
    model, data = MAKE["ppo"](optim.Adam)
    run = trainer(tmp_path)
    run.fit(model, datamodule=data)
    run.save_checkpoint(path := tmp_path / "it.ckpt")

    for kind, match in ((optim.SGD, "with the optimizer Adam, and this run has SGD"), (in_groups, "parameter groups")):
        other, _ = MAKE["ppo"](kind)
        more = cartpole_data(total_env_steps=128)
        with pytest.raises(ConfigurationError, match=match):
            trainer(tmp_path).fit(other, datamodule=more, ckpt_path=path, weights_only=True)


def in_groups(parameters: Any) -> optim.Adam:
    first, *rest = parameters
    return optim.Adam([{"params": [first], "lr": 1e-3}, {"params": rest}])


class Own(PPO):
    """Makes optimizers in Lightning's way."""

    def configure_optimizers(self) -> Any:
        return optim.Adam(self.parameters())


def test_configure_optimizers_of_ones_own_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = cartpole_data()
    with pytest.raises(ConfigurationError, match=r"Own overrides configure_optimizers.*override build_optimizers"):
        trainer(tmp_path).fit(Own(data.spaces), datamodule=data)


def test_groups_keep_the_rates_they_were_given_and_schedules_scale_them() -> None:
    optimizers = OptimizerGroup([in_groups([nn.Parameter(torch.ones(1)) for _ in range(2)])])

    optimizers.set_learning_rates_([0.3], 1.0)
    assert [group["lr"] for group in optimizers.groups] == [1e-3, 0.3]
    optimizers.set_learning_rates_([0.15], 0.5)
    assert [group["lr"] for group in optimizers.groups] == [5e-4, 0.15]


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_a_schedule_reaches_the_groups_of_every_algorithm(tmp_path: Path, algorithm: str) -> None:
    model, data = MAKE[algorithm](
        in_groups if algorithm != "sac" else lambda each: optim.Adam([{"params": [*each], "lr": 1e-2}])
    )
    model.learning_rate_schedule = "linear"
    trainer(tmp_path).fit(model, datamodule=data)

    group = model.optim.groups[0]
    share = 1 - (model.global_step - 1) / data.iterations
    assert group["lr"] == pytest.approx(share * (1e-2 if algorithm == "sac" else 1e-3))


@pytest.mark.parametrize("algorithm", ["sac", "options"])
def test_weight_decay_leaves_temperatures_alone_and_nothing_else(algorithm: str) -> None:
    model, _ = MAKE[algorithm](partial(optim.AdamW, weight_decay=0.5))
    decay = {
        id(parameter): group["weight_decay"]
        for optimizer in model.build_optimizers()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert decay[id(parameter)] == (0.0 if "log_alpha" in name else 0.5), name
