"""The optimizers step raw: rates, options and captures are theirs, and an overflow costs a step only."""

import math

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Adagrad, Adam, Adamax, Optimizer

from modules.optim.optimizer_group import OptimizerGroup

CPU = torch.device("cpu")


def made(kind: type[Optimizer] = Adam, groups: int = 1) -> tuple[nn.Linear, OptimizerGroup]:
    torch.manual_seed(0)
    layer = nn.Linear(2, 1)
    parameters = layer.parameters() if groups == 1 else [{"params": [each]} for each in layer.parameters()]
    return layer, OptimizerGroup([kind(parameters, lr=0.1)])


def test_a_capturable_rate_is_one_tensor_that_keeps_its_address():
    _, optimizers = made()
    assert optimizers.make_capturable_(CPU)
    rate = optimizers.groups[0]["lr"]

    optimizers.set_learning_rates_([0.5])

    assert rate is optimizers.groups[0]["lr"] and float(rate) == 0.5
    assert optimizers.groups[0]["capturable"]


def test_an_optimizer_that_no_graph_can_hold_is_not_captured_with_a_warning():
    _, optimizers = made(Adagrad)

    with pytest.warns(UserWarning, match=r"not captured as a CUDA graph \(of Adagrad\)"):
        assert not optimizers.make_capturable_(CPU)


def test_options_of_a_checkpoint_give_way_to_the_configurations():
    _, optimizers = made()
    optimizers.groups[0] |= {"weight_decay": 0.5, "lr": 9.0}

    optimizers.restore_options_()

    assert optimizers.groups[0]["weight_decay"] == 0 and optimizers.groups[0]["lr"] == 9.0


@pytest.mark.parametrize("groups", [1, 2])
def test_a_scaled_step_equals_a_plain_one_and_an_overflow_leaves_the_weights(groups: int):
    layers, norms = [], []
    for scaled in (False, True):
        layer, optimizers = made(groups=groups)
        optimizers.scaler = GradScaler("cpu", init_scale=1024.0) if scaled else None
        norms.append(optimizers.step(layer(torch.ones(3, 2)).sum(), optimizers.each[0], 0.5))
        layers.append(layer)
    torch.testing.assert_close(layers[0].weight, layers[1].weight)
    torch.testing.assert_close(*norms)
    before = layers[1].weight.clone()

    norm = optimizers.step(layers[1](torch.full((3, 2), 1e38)).sum(), optimizers.each[0], 0.5)

    assert torch.equal(layers[1].weight, before) and norm == 0


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("first", [True, False])
def test_a_step_without_a_finite_gradient_is_taken_back_with_its_momentum(groups: int, first: bool):
    (layer, optimizers), (same, others) = made(groups=groups), made(groups=groups)

    def step(layer: nn.Linear, optimizers: OptimizerGroup, scale: float) -> torch.Tensor:
        return optimizers.step_if_finite(layer(torch.full((3, 2), scale)).sum(), optimizers.each[0], 0.5)

    norms = [step(layer, optimizers, scale) for scale in ([float("inf"), 1.0] if first else [1.0, float("nan"), 1.0])]
    expected = [step(same, others, 1.0) for _ in norms[1:]]

    assert torch.equal(layer.weight, same.weight) and norms[0 if first else 1] == 0
    assert norms[-1] == expected[-1] > 0
    assert all(torch.equal(a, b) for a, b in zip(optimizers.tensors, others.tensors, strict=True))


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("kind", [Adam, Adamax])
def test_a_step_of_each_equals_steps_one_by_one(kind: type[Optimizer], scaled: bool):
    results = []
    for together in (False, True):
        torch.manual_seed(0)
        layers = [nn.Linear(2, width) for width in (1, 2)]
        optimizers = OptimizerGroup([kind(layer.parameters(), lr=0.1) for layer in layers])
        optimizers.scaler = GradScaler("cpu", init_scale=1024.0) if scaled else None
        losses = [layer(torch.ones(3, 2)).square().sum() for layer in layers]
        bounds = dict(zip(optimizers.each, (0.5, math.inf), strict=True))
        if together:
            norms = optimizers.step_many(sum(losses), bounds)
        else:
            norms = [optimizers.step(loss, *pair) for loss, pair in zip(losses, bounds.items(), strict=True)]
        results.append([*norms, *(weight.detach() for layer in layers for weight in layer.parameters())])
    torch.testing.assert_close(*results, rtol=0, atol=0)
