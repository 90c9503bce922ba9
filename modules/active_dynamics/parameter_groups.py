"""Parameters of a dynamics model: those of encoder and decoder, those that a regression sets, and the optimizer's."""

from collections.abc import Sequence
from typing import Any

from torch import nn


def encoder_parameters(model: Any) -> list[nn.Parameter]:
    """Return the parameters of encoder and decoder; [] for an observed state."""
    return [] if model.observed else [*model.encoder.parameters(), *model.decoder.parameters()]


def freeze_encoder_(model: Any) -> None:
    """Freeze encoder and decoder."""
    for parameter in encoder_parameters(model):
        parameter.requires_grad_(False)


def regressed_parameters(model: Any) -> list[nn.Parameter]:
    """Return f's last layer, and the matrix of a linear action encoder if there is one."""
    linear = getattr(model.action_encoder, "linear", None)
    return [model.dynamics.weight] + ([] if linear is None else [linear.weight])


def parameter_groups(
    model: Any, learned: Sequence[nn.Parameter], regressed: Sequence[nn.Parameter], encoder_learning_rate: float | None
) -> list[Any]:
    """Return the optimizer's parameters: `learned` without `regressed`; encoder and decoder apart if they have a rate.

    Args:
        encoder_learning_rate: of encoder and decoder; None or 0 for one group of all.
    """
    left_out = {id(parameter) for parameter in regressed}
    kept = [parameter for parameter in learned if id(parameter) not in left_out]
    if not encoder_learning_rate:
        return kept
    own = {id(parameter) for parameter in encoder_parameters(model)}
    groups = [{"params": [each for each in kept if id(each) in own], "lr": encoder_learning_rate}]
    return [*groups, {"params": [each for each in kept if id(each) not in own]}]
