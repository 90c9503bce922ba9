"""Checkpoints of the older system, read safely."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import load_tensors
from modules.optim.flat_parameters import ALIGNMENT

MOMENTS = ("exp_avg", "exp_avg_sq")
KEYS = ("model_state_dict", "target_model_state_dict", "optimizer_state_dict", "epsilon", "step_count")
"""The parts of a checkpoint."""


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Load a checkpoint's contents, tensors on the CPU; nothing in the file is executed.

    Raises:
        ConfigurationError: if there is no such file, it is damaged, holds more than tensors and plain values, or parts
            of it are missing or of another kind.
    """
    if not Path(path).is_file():
        raise ConfigurationError(f"There is no checkpoint {path}; check the path.")
    cure = "give a checkpoint that the older Snake system saved"
    checkpoint = load_tensors(path, cure=cure)
    missing = [key for key in KEYS if key not in checkpoint] if isinstance(checkpoint, dict) else list(KEYS)
    if missing:
        raise ConfigurationError(f"{path} lacks {', '.join(missing)}; {cure}.")
    wrong = [key for key in KEYS if not IS_VALID[key](checkpoint[key])]
    if wrong or not fits(checkpoint["optimizer_state_dict"]["state"], [*checkpoint["model_state_dict"].values()]):
        raise ConfigurationError(
            f"{path} holds another {wrong[0] if wrong else 'optimizer_state_dict'} than it should; {cure}."
        )
    return checkpoint


def fits(states: dict[int, dict[str, Any]], weights: list[Tensor]) -> bool:
    """Whether Adam's state is empty, or holds a step and both moments of every weight."""
    if not states:
        return True
    if sorted(states) != list(range(len(weights))) or not all(isinstance(state, dict) for state in states.values()):
        return False
    moments = [(states[number].get(name), weight) for number, weight in enumerate(weights) for name in MOMENTS]
    steps = [state.get("step") for state in states.values()]
    shaped = all(isinstance(moment, Tensor) and moment.shape == weight.shape for moment, weight in moments)
    return shaped and all(
        isinstance(step, int | float) or (isinstance(step, Tensor) and step.dim() == 0) for step in steps
    )


def _are_weights(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, Tensor) and each.is_floating_point() for each in value.values()
    )


def _is_of_adam(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("state"), dict):
        return False
    groups = value.get("param_groups")
    return isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], dict)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


IS_VALID: dict[str, Callable[[Any], bool]] = {
    "model_state_dict": _are_weights,
    "target_model_state_dict": _are_weights,
    "optimizer_state_dict": _is_of_adam,
    "epsilon": _is_share,
    "step_count": _is_count,
}
"""What the parts of a checkpoint must be."""


def named_alike(network: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The old weights under the network's names: same order, same shapes, whatever they were called.

    Raises:
        ConfigurationError: if shapes differ.
    """
    ours = network.state_dict()
    wanted, found = ([tuple(value.shape) for value in state.values()] for state in (ours, weights))
    if wanted != found:
        raise ConfigurationError(
            f"The checkpoint's layers are {found} and the network's {wanted}; choose the old state size."
        )
    return dict(zip(ours, weights.values(), strict=True))


def laid_out(saved: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return Adam's state for one flat tensor (`modules.optim.flat_parameters`), from that of separate parameters.

    Args:
        saved: a `state_dict` for separate parameters.
        own: one for the flat ones, which options that the old file lacks are taken from.
    """

    def joined(name: str) -> Tensor:
        flat = (states[number][name].flatten() for number in sorted(states))
        return torch.cat([pad(piece, (0, -piece.numel() % ALIGNMENT)) for piece in flat])

    states, (group,) = saved["state"], own["param_groups"]
    options = group | saved["param_groups"][0] | {"params": group["params"], "fused": True, "foreach": None}
    moments = {name: joined(name) for name in MOMENTS} if states else {}
    step = {"step": torch.as_tensor(states[0]["step"]).float()} if states else {}
    return {"state": {0: step | moments}, "param_groups": [options]}


def apart(saved: dict[str, Any], parameters: list[nn.Parameter]) -> dict[str, Any]:
    """The reverse of `laid_out`: Adam's state for separate parameters, as the old system knows it."""
    sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]

    def split(whole: Tensor) -> list[Tensor]:
        pieces = zip(parameters, whole.split(sizes), strict=True)
        return [piece[: parameter.numel()].view_as(parameter).clone() for parameter, piece in pieces]

    states, (group,) = {}, saved["param_groups"]
    if whole := saved["state"].get(0):
        columns = [[whole["step"]] * len(sizes), *(split(whole[name]) for name in MOMENTS)]
        rows = zip(*columns, strict=True)
        states = {number: dict(zip(("step", *MOMENTS), row, strict=True)) for number, row in enumerate(rows)}
    return {"state": states, "param_groups": [group | {"params": [*range(len(sizes))]}]}
