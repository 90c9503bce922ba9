"""WeightsReport: write hashes of the final weights, counters and the mode of each phase, to compare runs."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from callbacks.performance.throughput import phases
from callbacks.run_control.atomic_write import atomic_write
from modules.optim.distributed import all_gather_object

BY_HAND = "hand-written"
"""Mode of an update whose passes `modules.manual_backward` computes."""


class WeightsReport(Callback):
    """Write a JSON file after the last iteration.

    Args:
        path: path of the file.
    """

    acts_per_iteration = False

    def __init__(self, path: str):
        self.path = path
        self.modes: dict[str, str] = {}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record how the phases ran: compiled functions are freed at the end."""
        self.modes = {name: phase.execution_mode for name, phase in phases(trainer, pl_module).items()}
        if pl_module.replaced_methods:
            self.modes["update"] = BY_HAND

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the file on rank 0, with the hash of every rank's weights."""
        hashes = all_gather_object(hash_of(pl_module.state_dict()))
        if not trainer.is_global_zero:
            return
        counters = {name: getattr(pl_module, name) for name in ("env_steps", "updates")}
        with atomic_write(Path(self.path)) as file:
            file.write(json.dumps({"weights": hashes, "phases": self.modes, **counters}).encode())


def hash_of(weights: dict[str, Tensor]) -> str:
    """Return the SHA-256 of names and bytes of tensors."""
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
