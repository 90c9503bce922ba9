"""Policies of exploration: what to try next, with a model or without.

A policy sees a belief and gives actions in [-1, 1]; its state is part of the actor's, so that it is saved, and is set
to zero when an episode begins.
"""

import math
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from modules.exploration.acquisitions import Acquisition, InformationGain, Knowledge, Paths
from modules.exploration.planners import CEM, Planner, State, check

CACHED = 512
"""Candidates whose paths a CPU works on at a time: their features, 4 MB with a grid of 11 x 11, stay in its caches."""


class Belief(NamedTuple):
    """Where an agent believes to be: means and variances `[B, D]`."""

    mean: Tensor
    variance: Tensor


class Exploration(Protocol):
    """Decides what to try."""

    def noise_size(self, actions: int) -> int:
        """Standard normals that a decision about `actions` dimensions consumes."""
        ...

    def initial_state(self, batch: int, actions: int) -> State:
        """State at the start of an episode: zeros, every leaf `[B, ...]`."""
        ...

    def __call__(self, knowledge: Knowledge, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Actions `[B, A]` in [-1, 1], and the next state.

        Args:
            noise: `[B, noise_size]`, standard normal.
        """
        ...


class Off(nn.Module):
    """No input: what the system does by itself."""

    def noise_size(self, actions: int) -> int:
        """One that is not used: noise has a size."""
        return 1

    def initial_state(self, batch: int, actions: int) -> State:
        """The action, which stays zero."""
        return {"action": torch.zeros(batch, actions)}

    def forward(self, knowledge: Knowledge, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Zeros."""
        return state["action"], state


class Random(nn.Module):
    """A fresh uniform action every step."""

    def noise_size(self, actions: int) -> int:
        """One a dimension."""
        return actions

    def initial_state(self, batch: int, actions: int) -> State:
        """Nothing to remember."""
        return {}

    def forward(self, knowledge: Knowledge, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Uniform in [-1, 1]."""
        return uniform(noise), state


class Held(nn.Module):
    """A uniform action, held for some steps: persistent excitation, the baseline that is hard to beat.

    Args:
        steps: that an action is held.

    Source: Ljung 1999, System Identification, chapter 13.
    """

    def __init__(self, steps: int = 20):
        super().__init__()
        check(steps=steps)
        self.steps = steps

    def noise_size(self, actions: int) -> int:
        """One a dimension."""
        return actions

    def initial_state(self, batch: int, actions: int) -> State:
        """The action that is held, and the steps since the episode began."""
        return {"action": torch.zeros(batch, actions), "age": torch.zeros(batch, dtype=torch.int64)}

    def forward(self, knowledge: Knowledge, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """A new action when the old one has been held long enough."""
        due = state["age"] % self.steps == 0
        action = torch.where(due.unsqueeze(1), uniform(noise), state["action"])
        return action, {"action": action, "age": state["age"] + 1}


class Timed(nn.Module):
    """What deterministic signals share: they depend on the steps since the episode began."""

    def noise_size(self, actions: int) -> int:
        """One that is not used: noise has a size."""
        return 1

    def initial_state(self, batch: int, actions: int) -> State:
        """The steps since the episode began, for every dimension."""
        return {"age": torch.zeros(batch, actions, dtype=torch.int64)}

    def forward(self, knowledge: Knowledge, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """The signal now."""
        dimension = torch.arange(state["age"].shape[1], device=state["age"].device)
        return self.signal(state["age"], dimension), {"age": state["age"] + 1}

    def signal(self, age: Tensor, dimension: Tensor) -> Tensor:
        """Actions `[B, A]` from ages `[B, A]` and the number of each dimension `[A]`."""
        raise NotImplementedError


class Step(Timed):
    """Step inputs: one dimension after the other, up, nothing, down.

    Args:
        steps: that each level is held.
        amplitude: of the levels, in half-ranges.
    """

    def __init__(self, steps: int = 20, amplitude: float = 1.0):
        super().__init__()
        check(steps=steps, amplitude=amplitude)
        self.steps, self.amplitude = steps, amplitude

    def signal(self, age: Tensor, dimension: Tensor) -> Tensor:
        """Amplitude, 0, minus amplitude in the one dimension whose turn it is."""
        phase = age // self.steps
        level = 1 - phase % 3  # 1, 0, -1
        mine = (phase // 3) % len(dimension) == dimension
        return self.amplitude * level * mine


class Sinusoid(Timed):
    """A sweep of frequencies, a quarter of a period apart between dimensions, again and again.

    Args:
        slowest: period at the start of the sweep, in steps.
        fastest: period at its end, in steps.
        sweep: steps from the slowest to the fastest.
        amplitude: in half-ranges.
    """

    def __init__(self, slowest: float = 200.0, fastest: float = 10.0, sweep: int = 500, amplitude: float = 1.0):
        super().__init__()
        check(slowest=slowest, fastest=fastest, sweep=sweep, amplitude=amplitude)
        self.start, self.end, self.sweep, self.amplitude = 1 / slowest, 1 / fastest, sweep, amplitude

    def signal(self, age: Tensor, dimension: Tensor) -> Tensor:
        """A chirp: the frequency grows linearly."""
        t = age % self.sweep
        cycles = self.start * t + (self.end - self.start) * t.square() / (2 * self.sweep)
        return self.amplitude * torch.sin(2 * math.pi * (cycles + dimension / 4))


class Planned(nn.Module):
    """Plans with the model, for what the acquisitions say it is worth, and takes the first action: replans every step.

    Args:
        planner: a `Planner`, which searches over sequences of actions; null for `CEM`.
        acquisitions: each an `Acquisition`; they are weighted and added; null for `InformationGain`.
        discount: of a step's worth, in (0, 1].
    """

    def __init__(
        self, planner: nn.Module | None = None, acquisitions: list[nn.Module] | None = None, discount: float = 1.0
    ):
        super().__init__()
        self.planner = cast(Planner, planner or CEM())
        self.acquisitions = nn.ModuleList(acquisitions or [InformationGain()])
        check(discount=discount)
        self.discount = discount

    def noise_size(self, actions: int) -> int:
        """The planner's."""
        return self.planner.noise_size(actions)

    def initial_state(self, batch: int, actions: int) -> State:
        """The planner's."""
        return self.planner.initial_state(batch, actions)

    def forward(self, knowledge: Knowledge, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """The first action of the best plan."""
        plan, state = self.planner(lambda actions: self.score(knowledge, belief, actions), state, noise)
        return plan[:, 0], state

    def score(self, knowledge: Knowledge, belief: Belief, actions: Tensor) -> Tensor:
        """What candidates `[B, N, H, A]` are worth, `[B, N]`; on a CPU a few agents at a time, as its caches hold."""
        if actions.device.type != "cpu":
            return self.worth(knowledge, belief, actions)
        agents = max(1, CACHED // actions.shape[1])
        parts = zip(belief.mean.split(agents), belief.variance.split(agents), actions.split(agents), strict=True)
        return torch.cat([self.worth(knowledge, Belief(mean, variance), some) for mean, variance, some in parts])

    def worth(self, knowledge: Knowledge, belief: Belief, actions: Tensor) -> Tensor:
        """The same, all at once."""
        paths = imagined(knowledge, belief, actions)
        terms = [cast(Acquisition, term) for term in self.acquisitions]
        worth = torch.stack([term.weight * term(knowledge, paths) for term in terms]).sum(0)
        steps = torch.arange(actions.shape[2], device=actions.device)
        return (worth * self.discount**steps).sum(-1)


def imagined(knowledge: Knowledge, belief: Belief, actions: Tensor) -> Paths:
    """Paths of the model's means from a belief under candidates `[B, N, H, A]`."""
    dynamics = knowledge.model.dynamics
    latent = belief.mean.unsqueeze(1).expand(-1, actions.shape[1], -1)
    control = knowledge.model.action_encoder(knowledge.scaled(actions))
    path, features = [latent], []
    for t in range(actions.shape[2]):
        features.append(dynamics.features(path[-1]))
        path.append(following(dynamics, path[-1], features[-1], control[:, :, t]))
    return Paths(torch.stack(path, dim=2), torch.stack(features, dim=2), control, actions, belief.variance)


def following(dynamics: Any, latent: Tensor, features: Tensor, control: Tensor) -> Tensor:
    """`dynamics.step`, from features that are known already where it is linear in them."""
    if not hasattr(dynamics, "weight"):
        return cast(Tensor, dynamics.step(latent, control))
    pushed = torch.add(dynamics.gain * (features @ dynamics.weight), control, alpha=dynamics.dt)
    return latent + pushed if dynamics.residual else pushed


def uniform(noise: Tensor) -> Tensor:
    """Standard normals as uniforms in [-1, 1]: their distribution function."""
    return torch.erf(noise / math.sqrt(2.0))
