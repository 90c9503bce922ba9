"""Choosing options for all rows costs about as much as one decision of the actor, and far less than row by row."""

import time
from collections.abc import Callable

import pytest
import torch

from datamodules.types import Spaces
from modules.functional.option_choice import choice_noise
from modules.options.controller import Controller
from modules.sac import SAC

OBS, OPTIONS = 24, 4
BOX = Spaces(
    obs_shape=(OBS,),
    obs_dtype="float32",
    action_kind="continuous",
    action_sizes=[],
    action_low=[-1.0] * 4,
    action_high=[1.0] * 4,
    action_start=[],
    agents=1,
)


def medians(*calls: Callable[[], object], rounds: int = 60) -> list[float]:
    """Median seconds of each, taken in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
    return [sorted(taken)[rounds // 2] for taken in times]


def selection(controller: Controller, rows: int) -> Callable[[], object]:
    obs, state, reset = torch.randn(rows, OBS), controller.initial_state(rows), torch.zeros(rows, dtype=torch.bool)
    noise = choice_noise((rows,), OPTIONS, torch.Generator().manual_seed(0))
    return lambda: controller.choose(obs, state, reset, noise)


@pytest.mark.parametrize("rows", [16, 128, 512])
@torch.inference_mode()
def test_choosing_for_all_rows_costs_about_one_decision_of_the_actor(rows: int):
    flat, controller = SAC(BOX), Controller((OBS,), OPTIONS)
    obs, reset = torch.randn(rows, OBS), torch.zeros(rows, dtype=torch.bool)
    noise = flat.noise((rows,), torch.Generator().manual_seed(0))

    choosing, deciding = medians(selection(controller, rows), lambda: flat.act(obs, {}, reset, noise=noise))

    assert choosing < 1.6 * deciding, f"{choosing / deciding:.2f} of a decision; 1.3 on an idle machine is the bar"


@torch.inference_mode()
def test_sixteen_rows_at_once_are_ten_times_faster_than_one_by_one():
    controller = Controller((OBS,), OPTIONS)
    one = selection(controller, 1)

    together, alone = medians(selection(controller, 16), lambda: [one() for _ in range(16)], rounds=20)

    assert alone > 7 * together, f"{alone / together:.1f} times; 10 on an idle machine is the bar"
