"""The parts of collecting, each by itself: environments with random actions, and the policy's decisions."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from app.timing import Latency, latency
from datamodules.collect.collector import Collector
from datamodules.core.phase import Joint
from datamodules.core.types import Spaces, State


class Part:
    """A function in the form that it has within the collect joint of a run: eager, compiled, or captured."""

    def __init__(self, function: Callable[..., Any], collector: Collector, name: str):
        self.function, self.name = function, name
        self.mode = (collector.joint if collector.pure else collector.acting[0].joint).mode
        self.device = collector.envs.device

    def joint(self, function: Callable[..., Any]) -> Joint[Any]:
        """`function`, which calls `once`."""
        joint = Joint(function, self.device, name=self.name, parts=[(self, "once")])
        joint.mode = self.mode
        return joint

    def once(self, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        return self.function(*args, **kwargs)

    def steps(self, state: State, actions: Tensor, noise: Tensor) -> State:
        """As many steps of environments made of tensors as there are actions `[T, B, ...]`."""
        for action, draw in zip(actions.unbind(), noise.unbind(), strict=True):
            state, *_ = self.once(state, action, draw)
        return state


@torch.no_grad()
def environment_alone(collector: Collector, seconds: float) -> float:
    """Seconds of one vector step with random actions, from a measurement that takes `seconds`.

    The environments move on: what the collector knows of them is no longer so.
    """
    envs, horizon = collector.envs, collector.horizon
    actions = random_actions(envs.spaces, (horizon, collector.rows), envs.device)
    if collector.pure is None:
        return latency(lambda: [envs.step(action) for action in actions], seconds, envs.device).mean / horizon
    state, noise = collector.pure.state, envs.noise(horizon)
    part = Part(collector.pure.advance, collector, "environment alone")
    joint = part.joint(part.steps)
    return latency(lambda: joint(state, actions, noise), seconds, envs.device).mean / horizon


@torch.no_grad()
def policy_alone(collector: Collector, seconds: float) -> Latency:
    """Seconds of one decision for all rows, waited for, from a measurement that takes `seconds`."""
    live, device = collector.live, collector.envs.device
    generator = torch.Generator(device).manual_seed(0)
    noise, mask = collector.actor.noise((collector.rows,), generator), live.masks.get("action_mask")
    part = Part(collector.actor.act, collector, "policy alone")
    joint = part.joint(lambda obs, state, reset, mask, noise: part.once(obs, state, reset, mask=mask, noise=noise))
    return latency(lambda: joint(live.obs, live.actor, live.reset, mask, noise), seconds, device)


def random_actions(spaces: Spaces, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Uniform actions of leading dimensions `shape`, as a policy would give them."""
    generator = torch.Generator(device).manual_seed(0)
    if spaces["action_kind"] == "continuous":
        low, high = (torch.tensor(spaces[bound], device=device) for bound in ("action_low", "action_high"))
        return low + (high - low) * torch.rand((*shape, len(low)), generator=generator, device=device)
    sizes = spaces["action_sizes"]
    parts = [torch.randint(size, shape, generator=generator, device=device) for size in sizes]
    return parts[0] if spaces["action_kind"] == "discrete" else torch.stack(parts, -1)
