"""The tensors' way into the environment's space is that of the arrays, and differences are found."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from app.export.comparison import TOLERANCE, compare, export_and_compare, record
from app.export.decision import ActionEncoder, Decision
from datamodules import RolloutDataModule
from datamodules.env_interface.spaces import make_action_encoder, to_space_spec
from modules import PPO

SPACES = {
    "shaped": gymnasium.spaces.Box(-2, 3, (2, 3), np.float32),
    "constant": gymnasium.spaces.Box(np.array([-1.0, 0.5, 0.0]), np.array([1.0, 0.5, 2.0]), dtype=np.float64),
    "whole": gymnasium.spaces.Box(-1, 3, (2,), np.int32),
    "discrete": gymnasium.spaces.Discrete(3, start=5),
    "multidiscrete": gymnasium.spaces.MultiDiscrete([2, 3], start=[1, 2]),
    "binary": gymnasium.spaces.MultiBinary(3),
}


@pytest.mark.parametrize("kind", SPACES)
def test_actions_are_those_of_the_data_modules(kind: str) -> None:
    space = SPACES[kind]
    spaces = to_space_spec(gymnasium.spaces.Box(0, 1, (2,)), space, name="test")
    if spaces["action_type"] == "continuous":
        actions = 3 * torch.randn(50, len(spaces["action_low"]))
    else:
        actions = torch.stack([torch.randint(size, (50,)) for size in spaces["action_sizes"]], 1)
        actions = actions[:, 0] if kind == "discrete" else actions

    ours, expected = ActionEncoder(spaces)(actions).numpy(), make_action_encoder(space)(actions.numpy())

    assert ours.dtype == expected.dtype and ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


def test_a_difference_is_found() -> None:
    data = RolloutDataModule("Pendulum-v1")
    decision = Decision(PPO(data.spaces))
    recorded = record(data, decision, 10)

    def shifted(by: float):  # type: ignore[no-untyped-def]
        return lambda named: {"action": decision(named)["action"] + by}

    assert compare(decision, shifted(0.0), recorded).holds
    assert not compare(decision, shifted(3 * TOLERANCE), recorded).holds


def test_observations_of_several_parts_are_exported_for_any_number_of_rows(tmp_path: Path) -> None:
    data = RolloutDataModule("tests.support.parts_env.Parts")

    exported = export_and_compare(PPO(data.spaces).eval(), data, 7, "torch-export", tmp_path / "policy.pt2")

    assert exported.difference.holds and len(exported.record.inputs) == 7
