"""Choosing options for all rows takes about as many operations as one decision of the actor, whatever their number."""

from collections.abc import Callable

import pytest
import torch

from datamodules.core.types import PolicyInput, SpaceSpec
from modules.functional.options import choice_noise
from modules.sac.sac import SAC
from modules.sac_options.controller import OptionController
from tests.support.operation_count import Operations

OBS, OPTIONS = 24, 4
LIMIT = 2
BOX = SpaceSpec(
    obs_shape=(OBS,),
    obs_dtype="float32",
    action_type="continuous",
    action_sizes=[],
    action_low=[-1.0] * 4,
    action_high=[1.0] * 4,
    action_start=[],
    num_agents=1,
)


def operations(call: Callable[[], object]) -> int:
    with Operations() as counted:
        call()
    return counted.count


def selection(controller: OptionController, rows: int) -> Callable[[], object]:
    obs, state, episode_start = (
        torch.randn(rows, OBS),
        controller.initial_state(rows),
        torch.zeros(rows, dtype=torch.bool),
    )
    noise = choice_noise((rows,), OPTIONS, torch.Generator().manual_seed(0))
    return lambda: controller.choose(obs, state, episode_start, noise)


@pytest.mark.parametrize("rows", [16, 512])
@torch.no_grad()
def test_choosing_for_all_rows_takes_about_as_many_operations_as_one_decision_of_the_actor(rows: int):
    flat, controller = SAC(BOX), OptionController((OBS,), OPTIONS)
    obs, episode_start = torch.randn(rows, OBS), torch.zeros(rows, dtype=torch.bool)
    noise = flat.noise((rows,), torch.Generator().manual_seed(0))

    choosing, deciding = (
        operations(call)
        for call in (selection(controller, rows), lambda: flat.act(PolicyInput(obs, {}, episode_start), noise=noise))
    )

    assert choosing < LIMIT * deciding, f"{choosing} operations, {deciding} of a decision"


@torch.no_grad()
def test_more_rows_take_no_more_operations():
    controller = OptionController((OBS,), OPTIONS)

    assert len({operations(selection(controller, rows)) for rows in (2, 16, 128)}) == 1
