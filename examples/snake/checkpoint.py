"""Checkpoints of the older system, read safely."""

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from datamodules.types import UsageError
from modules.flat import ALIGNED

MOMENTS = ("exp_avg", "exp_avg_sq")
KEYS = ("model_state_dict", "target_model_state_dict", "optimizer_state_dict", "epsilon", "step_count")


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint's contents, tensors on the CPU; nothing in the file is executed.

    Raises:
        UsageError: if there is no such file, it holds more than tensors and plain values, or parts are missing.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise UsageError(f"There is no checkpoint {path}; check the path.") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise UsageError(
            f"{path} is no file of tensors and plain values, so loading it could run foreign code; save it anew with"
            " state dicts and numbers only."
        ) from error
    missing = [key for key in KEYS if key not in checkpoint] if isinstance(checkpoint, dict) else list(KEYS)
    if missing:
        raise UsageError(f"{path} lacks {', '.join(missing)}; give a checkpoint that the older Snake system saved.")
    return checkpoint


def named_alike(network: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The old weights under the network's names: same order, same shapes, whatever they were called.

    Raises:
        UsageError: if shapes differ.
    """
    ours = network.state_dict()
    wanted, found = ([tuple(value.shape) for value in state.values()] for state in (ours, weights))
    if wanted != found:
        raise UsageError(f"The checkpoint's layers are {found} and the network's {wanted}; choose the old state size.")
    return dict(zip(ours, weights.values(), strict=True))


def laid_out(saved: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Adam's state for parameters that lie in one tensor (see `modules.flat`), from that for separate ones.

    Args:
        saved: a `state_dict` for separate parameters.
        own: one for the flat ones, which options that the old file lacks are taken from.
    """

    def joined(name: str) -> Tensor:
        flat = (states[number][name].flatten() for number in sorted(states))
        return torch.cat([pad(piece, (0, -piece.numel() % ALIGNED)) for piece in flat])

    states, (group,) = saved["state"], own["param_groups"]
    options = group | saved["param_groups"][0] | {"params": group["params"], "fused": True, "foreach": None}
    moments = {name: joined(name) for name in MOMENTS} if states else {}
    step = {"step": torch.as_tensor(states[0]["step"]).float()} if states else {}
    return {"state": {0: step | moments}, "param_groups": [options]}


def apart(saved: dict[str, Any], parameters: list[nn.Parameter]) -> dict[str, Any]:
    """The reverse of `laid_out`: Adam's state for separate parameters, as the old system knows it."""
    sizes = [-(-parameter.numel() // ALIGNED) * ALIGNED for parameter in parameters]

    def split(whole: Tensor) -> list[Tensor]:
        pieces = zip(parameters, whole.split(sizes), strict=True)
        return [piece[: parameter.numel()].view_as(parameter).clone() for parameter, piece in pieces]

    states, (group,) = {}, saved["param_groups"]
    if whole := saved["state"].get(0):
        columns = [[whole["step"]] * len(sizes), *(split(whole[name]) for name in MOMENTS)]
        rows = zip(*columns, strict=True)
        states = {number: dict(zip(("step", *MOMENTS), row, strict=True)) for number, row in enumerate(rows)}
    return {"state": states, "param_groups": [group | {"params": [*range(len(sizes))]}]}
