"""CheckpointOption: a learned option of a checkpoint, which does not learn any more."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from modules.base.hparams import load_algorithm
from modules.sac_options.sac_options import SACOptions

SPACES = ("obs_shape", "action_type", "action_sizes", "action_low", "action_high")
"""Parts of the spaces in which checkpoint and environment agree."""


class CheckpointOption:
    """Scripted option that takes the most probable action of a learned option in a checkpoint of `SACOptions`.

    It may start anywhere and ends with the same probability at every step: the terminations of the checkpoint were
    learned for the task of that run.

    Args:
        checkpoint: path of the checkpoint, or of a run's folder, for its best checkpoint, else its last.
        option: index of the learned option.
        duration: mean number of steps.

    Raises: ConfigurationError if the file is no checkpoint of `SACOptions`, or an argument is out of range.
    """

    uses_actor = False
    min_duration = 1
    max_duration = 0

    def __init__(self, checkpoint: str, option: int, duration: float = 8.0) -> None:
        model = load_algorithm(checkpoint)
        if not isinstance(model, SACOptions):
            raise ConfigurationError(f"{checkpoint} is a checkpoint of {type(model).__name__}; give one of SACOptions.")
        has = f"from 0 to {model.num_options - 1}, the options of {checkpoint}"
        check_ranges(
            "CheckpointOption",
            ("option", option, 0 <= option < model.num_options, has),
            ("duration", duration, duration >= 1, "at least 1 step"),
        )
        self.checkpoint, self.option, self.duration = checkpoint, option, duration
        self.models = {torch.device("cpu"): model}

    def check_spaces(self, spaces: SpaceSpec) -> None:
        """Check that the checkpoint was trained with the observations and actions of an environment.

        Raises: ConfigurationError for another shape, number or bounds of them.
        """
        trained, given = (dict[str, Any](each) for each in (self.models[torch.device("cpu")].spaces, spaces))
        different = [
            f"{key} {trained[key]} in the checkpoint, {given[key]} in the environment"
            for key in SPACES
            if listed(trained[key]) != listed(given[key])
        ]
        if different:
            raise ConfigurationError(
                f"CheckpointOption: {self.checkpoint} was trained in an environment with other spaces"
                f" ({'; '.join(different)}): train its options in an environment with the same ones."
            )

    def initiation(self, obs: Tensor) -> Tensor:
        """Return True, bool `[B]`."""
        return torch.ones(len(obs), dtype=torch.bool, device=obs.device)

    @torch.no_grad()
    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the most probable action, of the shape and dtype of `actor_action`."""
        model = self.model_on(obs.device)
        ages = age.unsqueeze(-1).expand(-1, model.num_options)
        policy = model.option_policies(model.normalized(obs), None, ages)
        return model.unscale_action(policy.mode)[:, self.option]

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return 1 / duration, `[B]`."""
        return torch.full((len(obs),), 1 / self.duration, device=obs.device)

    def model_on(self, device: torch.device) -> SACOptions:
        """Return the checkpoint's model on a device; it is copied there once."""
        if device not in self.models:
            self.models[device] = deepcopy(self.models[torch.device("cpu")]).to(device)
        return self.models[device]


def listed(value: Any) -> Any:
    """Return a sequence as a list, other values unchanged: a checkpoint may hold tuples."""
    return value if isinstance(value, str) else list(value)
