"""Time the parts of collection separately: environments with random actions, and policy calls."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from app.timing import Latency, latency
from datamodules.collect.collector import RolloutCollector
from datamodules.core.phase import Phase
from datamodules.core.types import PolicyInput, SpaceSpec, State
from datamodules.wrappers.apply_wrappers import EnvWrapper, wrapper_name

REPEATS = {
    "RepeatAction": ("num_repeats", 1),
    "MaxAndSkipObservation": ("skip", 4),
    "AtariPreprocessing": ("frame_skip", 4),
}
"""Gymnasium's wrappers that step an environment several times, their argument for it, and its default."""


class Part:
    """Function in the execution mode of the collect phase: eager, compiled, or captured."""

    def __init__(self, function: Callable[..., Any], collector: RolloutCollector, name: str):
        self.function, self.name = function, name
        self.mode = (collector.phase if collector.stateless_envs else collector.policy_runners[0].phase).mode
        self.device = collector.envs.device

    def phase(self, function: Callable[..., Any]) -> Phase[Any]:
        """Return a phase of `function`, which calls `call`."""
        phase = Phase(function, self.device, name=self.name, compile_targets=[(self, "call")])
        phase.mode = self.mode
        return phase

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function once."""
        return self.function(*args, **kwargs)

    def steps(self, state: State, actions: Tensor, noise: Tensor) -> State:
        """Step on-device environments once per action of `[T, B, ...]`."""
        for action, draw in zip(actions.unbind(), noise.unbind(), strict=True):
            state, *_ = self.call(state, action, draw)
        return state


@torch.no_grad()
def time_env_only(collector: RolloutCollector, seconds: float) -> float:
    """Return the seconds per vector step with random actions, from a measurement that takes `seconds`.

    The environments advance: the collector's state is invalid afterwards.
    """
    envs, steps = collector.envs, collector.rollout_length
    actions = random_actions(envs.spaces, (steps, collector.rows), envs.device)
    if collector.stateless_envs is None:
        return latency(lambda: [envs.step(action) for action in actions], seconds, envs.device).mean / steps
    state, noise = collector.stateless_envs.state, envs.noise(steps)
    part = Part(collector.stateless_envs.stateless_step, collector, "environment alone")
    phase = part.phase(part.steps)
    return latency(lambda: phase(state, actions, noise), seconds, envs.device).mean / steps


@torch.no_grad()
def time_policy_only(collector: RolloutCollector, seconds: float) -> Latency:
    """Return the seconds per policy call for all rows, synchronized, from a measurement that takes `seconds`."""
    state, device = collector.state, collector.envs.device
    generator = torch.Generator(device).manual_seed(0)
    noise, mask = collector.policy.noise((collector.rows,), generator), state.masks.get("action_mask")
    part = Part(collector.policy.act, collector, "policy alone")
    phase, inputs = part.phase(part.call), PolicyInput(state.obs, state.policy_state, state.episode_start, mask)
    return latency(lambda: phase(inputs, noise), seconds, device)


def random_actions(spaces: SpaceSpec, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Draw uniform actions of leading dimensions `shape`, in the policy's format."""
    generator = torch.Generator(device).manual_seed(0)
    low, high = (torch.tensor(spaces[bound], device=device) for bound in ("action_low", "action_high"))
    values = low + (high - low) * torch.rand((*shape, len(low)), generator=generator, device=device)
    parts = [torch.randint(size, shape, generator=generator, device=device) for size in spaces["action_sizes"]]
    match spaces["action_type"]:
        case "continuous":
            return values
        case "discrete":
            return parts[0]
        case "hybrid":
            return torch.cat([torch.stack(parts, -1).to(values.dtype), values], -1)
    return torch.stack(parts, -1)


def ticks_per_step(envs: Any, wrappers: Sequence[EnvWrapper]) -> int:
    """Return how often an environment is simulated in one env step: its own ticks times those of its wrappers.

    An on-device environment has the attribute `ticks_per_step` if they are several.

    Args:
        envs: the vector environment.   wrappers: those of each environment.
    """
    inner = getattr(envs, "unwrapped", envs)
    own = getattr(getattr(inner, "env", None), "ticks_per_step", 1)
    named = ((REPEATS.get(wrapper_name(each)), getattr(each, "keywords", {})) for each in wrappers)
    return own * prod(arguments.get(found[0], found[1]) for found, arguments in named if found is not None)
