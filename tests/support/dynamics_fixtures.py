"""The smallest system to explore, and a model of it: what tests of exploration share."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.core.types import SpaceSpec, State
from datamodules.sequence import SequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.exploration.acquisitions import InformationGain, OutsideBox, PlannerContext
from modules.exploration.planners import CEM
from modules.exploration.policies import PlannedExploration


class Spring:
    """A damped spring that is pushed: x'' = -x - 0.3 x' - sin(2 x) + u, observed as it is; it never ends.

    Args:
        length: of an episode, for tests of ends; None for none.
    """

    noise_size = 2
    episode_stat_keys = ()
    dt = 0.1

    def __init__(self, length: int | None = None):
        self.length, self.min_truncation_step = length, length
        self.spaces = SpaceSpec(
            obs_shape=(2,), obs_dtype="float32", action_type="continuous", action_sizes=[],
            action_low=[-2.0, -2.0], action_high=[2.0, 2.0], action_start=[], num_agents=1,
        )  # fmt: skip

    def initial(self, noise: Tensor) -> State:
        return {"x": 2 * noise - 1, "age": torch.zeros(len(noise))}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        x = state["x"] + self.dt * (self.field(state["x"]) + action) + 0.02 * (noise - 0.5)
        age = state["age"] + 1
        never = torch.zeros(len(x), dtype=torch.bool)
        return {"x": x, "age": age}, torch.zeros(len(x)), never, age >= (self.length or math.inf)

    def observation(self, state: State) -> Tensor:
        return state["x"]

    def info(self, state: State) -> dict[str, Tensor]:
        return {}

    def latent(self, state: State) -> Tensor:
        return state["x"]

    mean = latent

    def field(self, x: Tensor) -> Tensor:
        return torch.stack([x[..., 1], -x[..., 0] - 0.3 * x[..., 1] - torch.sin(2 * x[..., 0])], dim=-1)

    def grid(self) -> Tensor:
        axis = torch.linspace(-1.5, 1.5, 9)
        return torch.cartesian_prod(axis, axis)


class Bumps(nn.Module):
    """f(z) = features(z) W on a grid of 5 x 5 Gaussian bumps, and a constant."""

    dt = gain = 0.1
    residual = True
    dimensions = 2
    centres: Tensor

    def __init__(self) -> None:
        super().__init__()
        axis = torch.linspace(-2, 2, 5)
        self.register_buffer("centres", torch.cartesian_prod(axis, axis), persistent=False)
        self.weight = nn.Parameter(torch.zeros(26, 2))

    @property
    def variance(self) -> Tensor:
        return torch.full((2,), 0.02**2 / 12)

    def features(self, z: Tensor) -> Tensor:
        bumps = torch.exp(-0.5 * (z.unsqueeze(-2) - self.centres).square().sum(-1))
        return torch.cat([bumps, torch.ones_like(z[..., :1])], dim=-1)

    def field(self, z: Tensor) -> Tensor:
        return self.features(z) @ self.weight

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        return z + self.dt * (self.field(z) + u)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        slopes = -(z.unsqueeze(-2) - self.centres) * self.features(z)[..., :-1].unsqueeze(-1)
        return torch.eye(2) + self.dt * torch.einsum("...pd,po->...od", slopes, self.weight[:-1])

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        spread = torch.tensor([-1.0, 1.0]).view(2, *[1] * z.dim())
        return self.step(z, u) + spread * z.abs() * self.dt


def knowledge(prior: float = 1.0) -> PlannerContext:
    """What an agent knows at first."""
    high = torch.full((2,), 2.0)
    return PlannerContext(FullyObservedModel(Bumps()), prior * torch.eye(26), torch.tensor(0.05), -high, high)


def spring_data(**changes: Any) -> SequenceDataModule:
    """Two springs, twelve iterations of two steps."""
    settings: dict[str, Any] = {
        "env": "tests.support.dynamics_fixtures.Spring",
        "num_envs": 2,
        "train_freq": 2,
        "total_env_steps": 48,
    }
    return SequenceDataModule(
        **{
            **settings,
            "sequence_length": 6,
            "capacity": 40,
            "num_val_sequences": 3,
            "val_sequence_length": 30,
            **changes,
        }
    )


def explorer(data: SequenceDataModule, **changes: Any) -> ActiveDynamics:
    """Plans three steps ahead."""
    planner = CEM(horizon=3, candidates=16, iterations=2, elites=4)
    box = OutsideBox([-2.0, -2.0], [2.0, 2.0])
    return ActiveDynamics(
        data.spaces,
        FullyObservedModel(Bumps()),
        **{"exploration": PlannedExploration(planner, [InformationGain(), box]), **changes},
    )
