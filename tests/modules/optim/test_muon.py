"""Muon for hidden matrices, AdamW for the rest: which gets what, equal to torch's own, saved, captured, refused."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from modules.networks import CNN, LSTM, MLP, MinGRU
from modules.optim import MuonAdamW
from modules.optim.muon import orthogonalized
from modules.optim.optimizer_group import OptimizerGroup
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt
from tests.modules.optim.test_every_optimizer import MAKE
from tests.support.small_runs import small_ppo, snake_data, trainer, weights_hash


def groups_of(model: PPO) -> tuple[set[str], set[str]]:
    """The names of the parameters that Muon and AdamW step in a run."""
    model.optim = OptimizerGroup(model.build_optimizers(), model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    muon, others = model.optim.groups
    assert not model.optim.flat and muon["use_muon"] and not others["use_muon"]
    return {names[id(each)] for each in muon["params"]}, {names[id(each)] for each in others["params"]}


def test_hidden_weights_get_muon_and_biases_norms_and_heads_adamw() -> None:
    network = partial(MLP, hidden=(8, 8), layer_norm=True)
    muon, others = groups_of(small_ppo(snake_data(), network=network, optimizer=MuonAdamW))
    assert len(muon) == 4 and all("network" in name and name.endswith("weight") for name in muon)
    assert {"actor.linear.weight", "critic.linear.weight", "actor.linear.bias"} <= others
    assert not muon & others


def test_stacked_gates_and_convolutions_get_adamw() -> None:
    recurrent = small_ppo(
        snake_data(), network=partial(LSTM, hidden=8, encoder=(8,)), share_torso=True, optimizer=MuonAdamW
    )
    muon, others = groups_of(recurrent)
    assert muon == {"network.encoder.1.weight"}
    assert {"network.inputs.0.weight", "network.recurrent.0.weight"} <= others

    network = partial(MinGRU, hidden=8, encoder=(8,))  # has no recurrent product
    muon, others = groups_of(small_ppo(snake_data(), network=network, share_torso=True, optimizer=MuonAdamW))
    assert muon == {"network.encoder.1.weight"} and "network.inputs.0.weight" in others

    data = snake_data(env_kwargs={"dim": 6, "distance_to_border": 2})
    model = small_ppo(data, network=CNN, optimizer=MuonAdamW, normalize_obs=False)
    images, kernels = groups_of(model)
    shapes = {name: parameter.dim() for name, parameter in model.named_parameters()}
    assert images and all(shapes[name] == 2 for name in images) and 4 in {shapes[name] for name in kernels}


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_steps_are_those_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix, bias = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.randn(4))
    own = [nn.Parameter(each.detach().clone()) for each in (matrix, bias)]
    theirs = [
        torch.optim.Muon([matrix], lr=0.02, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([bias], lr=0.02, weight_decay=0.0),
    ]
    ours = MuonAdamW(own, lr=0.02)
    for _ in range(5):
        for parameter, mine in zip((matrix, bias), own, strict=True):
            parameter.grad = torch.randn_like(parameter)
            mine.grad = parameter.grad.clone()
        for optimizer in (*theirs, ours):
            optimizer.step()
    torch.testing.assert_close(own, [matrix, bias], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(32, 8), (8, 32)])
def test_singular_values_become_about_one_and_those_of_zero_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalized(torch.randn(shape), 5))
    assert float(values.min()) > 0.6 and float(values.max()) < 1.3
    assert torch.equal(orthogonalized(torch.zeros(shape), 5), torch.zeros(shape))


def stepped(optimizer: MuonAdamW, parameters: list[nn.Parameter], gradients: list[list[Tensor]]) -> list[Tensor]:
    for each in gradients:
        for parameter, gradient in zip(parameters, each, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def test_a_saved_and_loaded_state_goes_on_bit_for_bit() -> None:
    torch.manual_seed(0)
    first = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4))]
    gradients = [[torch.randn_like(each) for each in first] for _ in range(6)]
    second = copy.deepcopy(first)
    whole = stepped(MuonAdamW(first), first, gradients)
    half = MuonAdamW(second)
    stepped(half, second, gradients[:3])
    resumed = MuonAdamW(second)
    resumed.load_state_dict(copy.deepcopy(half.state_dict()))
    assert all(map(torch.equal, stepped(resumed, second, gradients[3:]), whole))


def test_a_learning_rate_as_a_tensor_gives_the_same_muon_steps() -> None:
    torch.manual_seed(0)
    first = [nn.Parameter(torch.randn(4, 3))]
    second, gradients = copy.deepcopy(first), [[torch.randn(4, 3)] for _ in range(3)]
    with_tensor = MuonAdamW(second, lr=0.01)
    with_tensor.param_groups[0]["lr"] = torch.tensor(0.01)
    found, expected = stepped(with_tensor, second, gradients), stepped(MuonAdamW(first, lr=0.01), first, gradients)
    torch.testing.assert_close(found, expected)


def test_a_state_made_beforehand_is_that_of_the_first_step_and_is_captured() -> None:
    torch.manual_seed(0)
    layer, results = nn.Linear(3, 2), []
    for made in (False, True):
        module = copy.deepcopy(layer)
        optimizers = OptimizerGroup([MuonAdamW(module.parameters(), lr=0.01)])
        if made:
            optimizers.make_state_()
            assert optimizers.tensors and all(map(torch.equal, module.parameters(), layer.parameters()))
        for _ in range(3):
            optimizers.step(module(torch.ones(4, 3)).square().sum(), optimizers.each[0], 1.0)
        results.append([*module.parameters(), *optimizers.tensors])
    assert all(map(torch.equal, *results))
    assert optimizers.make_capturable_(torch.device("cpu"))


@pytest.mark.parametrize("algorithm", MAKE)
def test_every_algorithm_learns_with_it(tmp_path: Path, algorithm: str) -> None:
    model, data = MAKE[algorithm](MuonAdamW)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trainer(tmp_path).fit(model, datamodule=data)
    assert model.updates > 0 and all(bool(each.isfinite().all()) for each in model.parameters())
    assert not all(map(torch.equal, before, model.parameters()))


def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path) -> None:
    hashes = []
    for ends in ([None], [3, None]):
        for end in ends:
            lightning.seed_everything(1, verbose=False)
            data = snake_data(total_env_steps=768)
            model = small_ppo(data, network=partial(MLP, hidden=(16, 16)), optimizer=partial(MuonAdamW, eps=1e-5))
            path: Any = tmp_path / "k.ckpt"
            callbacks = [SaveAt(end, path, stop=True)] if end else []
            start = path if len(ends) == 2 and end is None else None
            trainer(tmp_path, *callbacks).fit(model, datamodule=data, ckpt_path=start, weights_only=True)
        hashes.append(weights_hash(model))
    assert hashes[0] == hashes[1]


def test_groups_and_negative_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="makes its own parameter groups"):
        MuonAdamW([{"params": [nn.Parameter(torch.ones(1))]}])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match=r"model\.optimizer cannot be made.*lr is -1"):
        small_ppo(snake_data(), optimizer=partial(MuonAdamW, lr=-1.0)).build_optimizers()
