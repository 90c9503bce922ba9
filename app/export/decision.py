"""Decision: greedy policy from observation to action as one module: normalisation, networks, squashing, clipping."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from app.agent.arrays import env_action_space
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import join_parts, name_parts
from datamodules.core.types import PolicyInput, SpaceSpec
from modules.base.algorithm import Algorithm

Named = dict[str, Tensor]


class Decision(nn.Module):
    """Greedy decision of an agent: normalisation, networks, squashing and the environment's units in one module.

    Inputs and outputs are dictionaries of tensors with leading dimension B. Inputs: `obs`, or `obs/NAME` for each part;
    of a recurrent or option policy also `episode_start` (bool) and `state/NAME`; and the masks that the environment
    gives. Outputs: `action`, in the environment's space, and `next_state/NAME`. Discrete observations are one-hot,
    as in training.

    Args:
        module: the algorithm, on the CPU and in eval mode.
        masked: whether `action_mask` is an input.

    Raises:
        ConfigurationError: for an algorithm whose decision is not a network.
    """

    def __init__(self, module: Algorithm, masked: bool = False):
        super().__init__()
        if not getattr(module, "compilable", True):
            raise ConfigurationError(
                f"{type(module).__name__} does not decide by a network: it searches for a plan with its learned model"
                " at every step, which no exported graph holds. Use it from Python: leyden.load(path).predict(obs)."
            )
        self.module, self.masked = module, masked
        self.encoder = ActionEncoder(module.spaces)
        self.state_names = [*module.initial_state(1)]

    def forward(self, inputs: Named) -> Named:
        """Return the action and the next state."""
        obs = join_parts("obs", inputs)
        first = next(iter(inputs.values()))
        state = {name: inputs[f"state/{name}"] for name in self.state_names}
        start = inputs.get("episode_start", first.new_zeros(first.shape[0], dtype=torch.bool))
        policy_input = PolicyInput(obs, state, start, inputs.get("action_mask"))
        output, following = self.module.act(policy_input, None, greedy=True)
        states = {f"next_state/{name}": following[name] for name in self.state_names if not name.endswith("_mask")}
        return {"action": self.encoder(output.action)} | states

    def named(self, inputs: PolicyInput) -> Named:
        """Return a policy's input as the module's."""
        named = name_parts("obs", inputs.obs)
        if self.state_names:
            named["episode_start"] = inputs.episode_start
            named |= {f"state/{name}": inputs.state[name] for name in self.state_names}
        if self.masked:
            assert inputs.action_mask is not None
            named["action_mask"] = inputs.action_mask
        return named

    def batch(self, inputs: Sequence[PolicyInput]) -> Named:
        """Return the rows of several inputs as one of the module's inputs."""
        rows = [self.named(each) for each in inputs]
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


class ActionEncoder(nn.Module):
    """Policy actions in the environment's space, as `datamodules.env_interface.spaces.make_action_encoder` on arrays.

    A Box action is clipped, its constant parts are filled in, integers share the range evenly; discrete parts begin at
    the first value of the space.
    """

    low: Tensor
    high: Tensor
    start: Tensor

    def __init__(self, spaces: SpaceSpec):
        super().__init__()
        space: Any = env_action_space(spaces)
        self.shape = tuple(space.shape)
        self.dtype = torch.from_numpy(np.zeros(1, dtype=space.dtype)).dtype
        self.continuous = isinstance(space, gymnasium.spaces.Box)
        low, high = (space.low.ravel(), space.high.ravel()) if self.continuous else (np.zeros(1), np.zeros(1))
        self.free = [int(index) for index in (low < high).nonzero()[0]]
        self.register_buffer("low", torch.from_numpy(np.array(low)))
        self.register_buffer("high", torch.from_numpy(np.array(high)))
        self.register_buffer("start", torch.as_tensor(getattr(space, "start", 0), dtype=torch.int64))

    def forward(self, action: Tensor) -> Tensor:
        """Return the environment's actions `[B, ...]`."""
        if not self.continuous:
            return (action + self.start).to(self.dtype).reshape(-1, *self.shape)
        if len(self.free) < len(self.low):
            places = torch.tensor(self.free)
            whole = self.low.to(action.dtype).expand(action.shape[0], -1)
            action = whole.index_copy(1, places, action)
        if self.dtype.is_floating_point:
            clipped = torch.minimum(torch.maximum(action, self.low), self.high)
            return clipped.to(self.dtype).reshape(-1, *self.shape)
        first, steps = self.low.double(), self.high.double() - self.low.double()
        above = torch.minimum((action.double() - first).clamp(min=0), steps)
        whole = first + torch.minimum(torch.floor(above * ((steps + 1) / steps.clamp(min=1))), steps)
        return whole.to(self.dtype).reshape(-1, *self.shape)

    @property
    def scale(self) -> float:
        """Return the largest bound of a continuous action, at least 1; the unit of the comparison's tolerance."""
        return max(1.0, float(self.high.abs().max()), float(self.low.abs().max())) if self.continuous else 1.0


def sizes_of(named: Named) -> dict[str, Any]:
    """Return shapes and dtypes as plain data; the first dimension is the batch."""
    return {
        name: {"shape": ["batch", *value.shape[1:]], "dtype": str(value.dtype).removeprefix("torch.")}
        for name, value in named.items()
    }
