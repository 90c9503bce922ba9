"""Exploration policies, with and without a model.

A policy maps a belief over the state to actions in [-1, 1]; its state is part of the actor's, so that it is saved, and
reset to zero when an episode begins.
"""

import math
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from datamodules.core.pytree import strip_prefix
from datamodules.core.types import PolicyInput
from modules.exploration.acquisitions import Acquisition, ImaginedTrajectories, InformationGain, PlannerContext
from modules.exploration.planners import CEM, Planner, State, check

CPU_BATCH = 512
"""Candidates per batch on a CPU: their features, 4 MB with a grid of 11 x 11, then fit into its caches."""


class Belief(NamedTuple):
    """Belief over the latent state: means and variances `[B, D]`."""

    mean: Tensor
    variance: Tensor


class Exploration(Protocol):
    """Interface of exploration policies."""

    def noise_size(self, actions: int) -> int:
        """Return the number of standard normals that an action of `actions` dimensions consumes."""
        ...

    def initial_state(self, batch: int, actions: int) -> State:
        """Return the state at the start of an episode: zeros, every leaf `[B, ...]`."""
        ...

    def __call__(self, knowledge: PlannerContext, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return actions `[B, A]` in [-1, 1], and the next state.

        Args:
            noise: `[B, noise_size]`, standard normal.
        """
        ...


class ZeroAction(nn.Module):
    """Zero input: observe the autonomous dynamics."""

    def noise_size(self, actions: int) -> int:
        """Return 1: the noise is unused, but its size must be positive."""
        return 1

    def initial_state(self, batch: int, actions: int) -> State:
        """Return the zero action."""
        return {"action": torch.zeros(batch, actions)}

    def forward(self, knowledge: PlannerContext, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return zeros."""
        return state["action"], state


class RandomAction(nn.Module):
    """Uniform random action, drawn at every step."""

    def noise_size(self, actions: int) -> int:
        """Return one per dimension."""
        return actions

    def initial_state(self, batch: int, actions: int) -> State:
        """Return `{}`: the policy has no state."""
        return {}

    def forward(self, knowledge: PlannerContext, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return actions uniform in [-1, 1]."""
        return uniform(noise), state


class HeldRandomAction(nn.Module):
    """Uniform random action held for `steps` steps (persistent excitation): a strong baseline.

    Args:
        steps: number of steps that an action is held.
        turn_back: while the belief is outside the algorithm's `box`, reverse the parts of the action whose input drives
            it further out, for the rest of the period.

    Source: Ljung 1999, System Identification, chapter 13.
    """

    def __init__(self, steps: int = 20, turn_back: bool = False):
        super().__init__()
        check(steps=steps)
        self.steps, self.needs_box = steps, turn_back

    def noise_size(self, actions: int) -> int:
        """Return one per dimension."""
        return actions

    def initial_state(self, batch: int, actions: int) -> State:
        """Return the held action, and the steps since the episode began."""
        return {"action": torch.zeros(batch, actions), "age": torch.zeros(batch, dtype=torch.int64)}

    def forward(self, knowledge: PlannerContext, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return the held action, or a new one every `steps` steps."""
        due = state["age"] % self.steps == 0
        action = torch.where(due.unsqueeze(1), uniform(noise), state["action"])
        if self.needs_box:
            push = outward_push(knowledge, belief, action.shape[1])
            action = torch.where(push == 0, action, -action.abs() * push.sign())
        return action, {"action": action, "age": state["age"] + 1}


class OpenLoopInput(nn.Module):
    """Base of deterministic signals, functions of the steps since the episode began."""

    def noise_size(self, actions: int) -> int:
        """Return 1: the noise is unused, but its size must be positive."""
        return 1

    def initial_state(self, batch: int, actions: int) -> State:
        """Return the steps since the episode began, for every dimension."""
        return {"age": torch.zeros(batch, actions, dtype=torch.int64)}

    def forward(self, knowledge: PlannerContext, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return the signal at the current step."""
        dimension = torch.arange(state["age"].shape[1], device=state["age"].device)
        return self.signal(state["age"], dimension), {"age": state["age"] + 1}

    def signal(self, age: Tensor, dimension: Tensor) -> Tensor:
        """Return actions `[B, A]` from ages `[B, A]` and the index of each dimension `[A]`."""
        raise NotImplementedError


class StepInput(OpenLoopInput):
    """Step inputs: one dimension after the other, each at +amplitude, 0, -amplitude.

    Args:
        steps: number of steps that each level is held.
        amplitude: amplitude of the levels, in half-ranges of the action.
    """

    def __init__(self, steps: int = 20, amplitude: float = 1.0):
        super().__init__()
        check(steps=steps, amplitude=amplitude)
        self.steps, self.amplitude = steps, amplitude

    def signal(self, age: Tensor, dimension: Tensor) -> Tensor:
        """Return amplitude, 0 or minus amplitude in the active dimension, 0 in the others."""
        phase = age // self.steps
        level = 1 - phase % 3  # 1, 0, -1
        mine = (phase // 3) % len(dimension) == dimension
        return self.amplitude * level * mine


class ChirpInput(OpenLoopInput):
    """Repeated linear frequency sweep (chirp), a quarter of a period apart between dimensions.

    Args:
        slowest: period at the start of the sweep, in steps.
        fastest: period at its end, in steps.
        sweep: steps from the slowest to the fastest.
        amplitude: amplitude in half-ranges of the action.
    """

    def __init__(self, slowest: float = 200.0, fastest: float = 10.0, sweep: int = 500, amplitude: float = 1.0):
        super().__init__()
        check(slowest=slowest, fastest=fastest, sweep=sweep, amplitude=amplitude)
        self.start, self.end, self.sweep, self.amplitude = 1 / slowest, 1 / fastest, sweep, amplitude

    def signal(self, age: Tensor, dimension: Tensor) -> Tensor:
        """Return the chirp, whose frequency grows linearly."""
        t = age % self.sweep
        cycles = self.start * t + (self.end - self.start) * t.square() / (2 * self.sweep)
        return self.amplitude * torch.sin(2 * math.pi * (cycles + dimension / 4))


class PlannedExploration(nn.Module):
    """Model predictive control of the acquisitions: plan with the model at every step, execute the first action.

    Args:
        planner: a `Planner`, which searches over action sequences; null for `CEM`.
        acquisitions: list of `Acquisition`, weighted and added; null for `InformationGain`.
        discount: factor of the value per step, in (0, 1].
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
        """Return the planner's noise size."""
        return self.planner.noise_size(actions)

    def initial_state(self, batch: int, actions: int) -> State:
        """Return the planner's initial state."""
        return self.planner.initial_state(batch, actions)

    def forward(self, knowledge: PlannerContext, belief: Belief, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return the first action of the best plan."""
        plan, state = self.planner(lambda actions: self.score(knowledge, belief, actions), state, noise)
        return plan[:, 0], state

    def score(self, knowledge: PlannerContext, belief: Belief, actions: Tensor) -> Tensor:
        """Return the values `[B, N]` of candidates `[B, N, H, A]`; on a CPU in batches that fit into its caches."""
        if actions.device.type != "cpu":
            return self.score_batch(knowledge, belief, actions)
        agents = max(1, CPU_BATCH // actions.shape[1])
        parts = zip(belief.mean.split(agents), belief.variance.split(agents), actions.split(agents), strict=True)
        return torch.cat([self.score_batch(knowledge, Belief(mean, variance), some) for mean, variance, some in parts])

    def score_batch(self, knowledge: PlannerContext, belief: Belief, actions: Tensor) -> Tensor:
        """Return the values of candidates in one batch."""
        paths = imagine(knowledge, belief, actions)
        terms = [cast(Acquisition, term) for term in self.acquisitions]
        worth = torch.stack([term.weight * term(knowledge, paths) for term in terms]).sum(0)
        steps = torch.arange(actions.shape[2], device=actions.device)
        return (worth * self.discount**steps).sum(-1)


def imagine(knowledge: PlannerContext, belief: Belief, actions: Tensor) -> ImaginedTrajectories:
    """Roll the model's means out from a belief under candidates `[B, N, H, A]`."""
    dynamics = knowledge.model.dynamics
    latent = belief.mean.unsqueeze(1).expand(-1, actions.shape[1], -1)
    control = knowledge.model.action_encoder(knowledge.scaled(actions))
    path, features = [latent], []
    for t in range(actions.shape[2]):
        features.append(dynamics.features(path[-1]))
        path.append(dynamics_step(dynamics, path[-1], features[-1], control[:, :, t]))
    return ImaginedTrajectories(
        torch.stack(path, dim=2), torch.stack(features, dim=2), control, actions, belief.variance
    )


def dynamics_step(dynamics: Any, latent: Tensor, features: Tensor, control: Tensor) -> Tensor:
    """Return `dynamics.step`, reusing features where the dynamics are linear in them."""
    if not hasattr(dynamics, "weight"):
        return cast(Tensor, dynamics.step(latent, control))
    pushed = torch.add(dynamics.gain * (features @ dynamics.weight), control, alpha=dynamics.dt)
    return latent + pushed if dynamics.residual else pushed


def part_of_state(inputs: PolicyInput, prefix: str) -> State:
    """Return a policy's part of the agents' state, named `prefixNAME` there; zero where an episode starts."""
    return {
        name: leaf.masked_fill(inputs.episode_start.view(-1, *[1] * (leaf.dim() - 1)), 0)
        for name, leaf in strip_prefix(prefix, inputs.state).items()
    }


def outward_push(knowledge: PlannerContext, belief: Belief, actions: int) -> Tensor:
    """Return how far each part of the action drives the belief out of the box, `[B, A]`; 0 while it is inside."""
    model = knowledge.model
    excess = knowledge.box.excess(model.decode(belief.mean))
    outward = (excess.unsqueeze(-2) @ model.decoder.sensitivity(belief.mean)[0]).squeeze(-2)
    return outward @ model.action_encoder(torch.eye(actions, device=outward.device)).T


def uniform(noise: Tensor) -> Tensor:
    """Map standard normals to uniforms in [-1, 1] by their distribution function."""
    return torch.erf(noise / math.sqrt(2.0))
