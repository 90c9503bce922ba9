"""Every algorithm and every kind of space: what it cannot act in is refused, and those that can are named."""

from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, SpaceSpec
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.base.checks import algorithms
from modules.sac.sac import SAC
from tests.support.dynamics_fixtures import Bumps

KINDS: dict[str, dict[str, Any]] = {
    "discrete": {"action_sizes": [3], "action_start": [0]},
    "multidiscrete": {"action_sizes": [3, 2], "action_start": [0, 0]},
    "binary": {"action_sizes": [2, 2], "action_start": [0, 0]},
    "continuous": {"action_low": [-2.0, -2.0], "action_high": [2.0, 2.0]},
}


def spaces_of_kind(kind: str) -> SpaceSpec:
    empty = {"action_sizes": [], "action_low": [], "action_high": [], "action_start": []}
    return SpaceSpec(obs_shape=(2,), obs_dtype="float32", action_type=kind, num_agents=1, **{**empty, **KINDS[kind]})


def made(path: str, spaces: SpaceSpec) -> Any:
    needs = {"model": FullyObservedModel(Bumps())} if path.endswith("ActiveDynamics") else {}
    return algorithms()[path](spaces, **needs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", algorithms())
def test_an_algorithm_acts_in_a_space_or_names_those_that_can(path: str, kind: str) -> None:
    spaces = spaces_of_kind(kind)
    if kind not in algorithms()[path].action_types:
        able = " or ".join(other for other, each in algorithms().items() if kind in each.action_types)
        with pytest.raises(ConfigurationError, match=f"^{path.rpartition('.')[2]} cannot act in .*: use {able}.$"):
            made(path, spaces)
        return
    model = made(path, spaces)
    noise = model.noise((3,), torch.Generator().manual_seed(0))
    decision, _ = model.act(
        PolicyInput(torch.zeros(3, 2), model.initial_state(3), torch.ones(3, dtype=torch.bool)), noise=noise
    )
    assert decision.action.shape == ((3,) if kind == "discrete" else (3, 2))


def test_the_algorithms_are_all_of_the_package() -> None:
    names = {path.rpartition(".")[2] for path in algorithms()}
    assert names == {"ActiveDynamics", "DQN", "PPO", "PQN", "SAC", "SACBC", "SACOptions"}


def test_a_constant_part_in_spaces_made_by_hand_is_refused() -> None:
    spaces = {**spaces_of_kind("continuous"), "action_high": [2.0, -2.0]}
    with pytest.raises(ConfigurationError, match=r"^Part 1 of the action cannot vary"):
        SAC(spaces)
