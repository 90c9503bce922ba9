"""Flat parameters: the optimizer that a module's parameters would have had, at the price of one."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.testing import assert_close

from modules.optim.flat_parameters import ALIGNMENT, FlatParameters, flatten_optimizer

Make = Callable[[Iterable[nn.Parameter]], optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "adam": lambda params: optim.Adam(params, lr=1e-2, eps=1e-5),
    "fused adam": lambda params: optim.Adam(params, lr=1e-2, eps=1e-5, fused=True),
    "fused adamw": lambda params: optim.AdamW(params, lr=1e-2, weight_decay=0.1, fused=True),
    "amsgrad": lambda params: optim.Adam(params, lr=1e-2, amsgrad=True, fused=True),
    "sgd": lambda params: optim.SGD(params, lr=1e-2, momentum=0.9),
    "rmsprop": lambda params: optim.RMSprop(params, lr=1e-2),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def loss_of(module: nn.Module, step: int) -> Tensor:
    return (10 * module(torch.full((4, 3), 0.1 * step))).square().sum()


def differentiate_(flat: FlatParameters, loss: Tensor) -> None:
    flat.copy_grads_(torch.autograd.grad(loss, flat.parameters, allow_unused=True))


def plain_step(loss: Tensor, optimizer: optim.Optimizer, parameters: list[nn.Parameter]) -> Tensor:
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, 0.5)
    optimizer.step()
    return norm


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_equal_those_of_the_optimizer_on_separate_parameters(make: Make) -> None:
    module = network()
    reference = copy.deepcopy(module)
    plain, optimizer = make(reference.parameters()), make(module.parameters())
    flat = flatten_optimizer(optimizer)
    assert flat is not None

    for step in range(5):
        differentiate_(flat, loss_of(module, step))
        norm = flat.clip_(0.5)
        flat.step_(optimizer)
        assert_close(norm, plain_step(loss_of(reference, step), plain, list(reference.parameters())))

    assert_close([*module.parameters()], [*reference.parameters()], rtol=1e-5, atol=1e-7)


def test_the_kernel_alone_gives_what_the_optimizer_gives_bit_for_bit() -> None:
    results = []
    for around in (False, True):
        module = network()
        optimizer = optim.AdamW(module.parameters(), lr=1e-2, fused=True)
        flat = flatten_optimizer(optimizer)
        assert flat is not None
        for step in range(5):
            differentiate_(flat, loss_of(module, step))
            if around:
                optimizer.step()
            else:
                flat.step_(optimizer)
        results.append([flat.flat.detach(), *optimizer.state[flat.flat].values()])
    assert all(map(torch.equal, *results))


def test_modules_keep_parameters_names_and_values() -> None:
    module = network()
    before, objects = copy.deepcopy(module.state_dict()), list(module.parameters())

    FlatParameters(objects)

    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(map(torch.is_same_size, objects, module.parameters())) and objects == list(module.parameters())
    assert all(
        parameter.data_ptr() % (4 * ALIGNMENT) == objects[0].data_ptr() % (4 * ALIGNMENT) for parameter in objects
    )


def test_a_parameter_that_the_loss_does_not_depend_on_has_a_zero_gradient_also_after_one_that_did() -> None:
    used, sometimes = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    flat = FlatParameters([used, sometimes])

    differentiate_(flat, (used + sometimes).sum())
    differentiate_(flat, (2 * used).sum())

    assert float(flat.gradient.sum()) == 6


def test_weights_loaded_later_are_those_that_the_optimizer_steps() -> None:
    module = network()
    optimizer = optim.SGD(module.parameters(), lr=1.0)
    flat = flatten_optimizer(optimizer)
    assert flat is not None
    module.load_state_dict({name: torch.full_like(value, 2.0) for name, value in module.state_dict().items()})

    flat.gradient.fill_(0.5)
    flat.step_(optimizer)

    assert all(bool((parameter == 1.5).all()) for parameter in module.parameters())


def test_what_a_weight_without_a_gradient_remembers_comes_to_nothing_and_the_setting_is_left_alone() -> None:
    weight = nn.Parameter(torch.ones(8))
    optimizer = optim.Adam([weight], lr=1e-3, fused=True)
    flat = flatten_optimizer(optimizer)
    assert flat is not None
    differentiate_(flat, weight.sum())
    for _ in range(1_200):  # 0.9 ** 1_000 is below what float32 holds
        flat.step_(optimizer)
        flat.gradient.zero_()
    assert not optimizer.state[flat.flat]["exp_avg"].any()
    assert torch.tensor(1e-40).mul(0.5) != 0


class Own(optim.SGD):
    """An optimizer that may look at shapes."""


@pytest.mark.parametrize(
    "make",
    [
        Own,
        lambda params: optim.SGD([{"params": [parameter]} for parameter in params]),
        lambda params: optim.SGD([*params, nn.Parameter(torch.zeros(1, dtype=torch.float64))]),
    ],
    ids=["own class", "groups", "dtypes"],
)
def test_what_may_depend_on_the_layout_keeps_its_own(make: Any) -> None:
    optimizer = make(network().parameters())
    before = [each for group in optimizer.param_groups for each in group["params"]]

    assert flatten_optimizer(optimizer) is None
    assert [each for group in optimizer.param_groups for each in group["params"]] == before
