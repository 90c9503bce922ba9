"""Checkpoints of the older system, read safely."""

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.types import UsageError

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
