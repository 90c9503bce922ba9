"""Frames have even sides and show what an algorithm says of its decision."""

from typing import Any

import numpy as np
import pytest
import torch

from callbacks.video.overlay import draw_frame
from datamodules.core.types import PolicyInput, PolicyOutput
from datamodules.rendering.episode import RenderedStep

IMAGES = [None, np.zeros((31, 45, 3), np.uint8), np.zeros((900, 1200, 3), np.uint8)]


def step(image: Any, obs: Any = None, **changes: Any) -> RenderedStep:
    """A step of an episode in which action 1 was taken."""
    obs = torch.zeros(1, 3) if obs is None else obs
    inputs = PolicyInput(obs, {}, torch.tensor([False]))
    whole = RenderedStep(image, 30, 4, 1.0, 5.0, inputs, PolicyOutput(torch.tensor([1]), {}), {}, np.int64(1))
    return whole._replace(**changes)


@pytest.mark.parametrize("image", IMAGES, ids=["none", "small", "large"])
def test_sides_are_even_and_readable(image: Any) -> None:
    height, width, channels = draw_frame(step(image), {}).shape

    assert height % 2 == width % 2 == 0 and channels == 3 and 400 <= height <= 640


@pytest.mark.parametrize(
    "details",
    [
        {"value": torch.tensor([3.0])},
        {"probabilities": torch.tensor([[0.2, 0.8]])},
        {"q_values": torch.tensor([[5.0] * 40])},
        {"std": torch.ones(1, 2)},
        {"latent": torch.zeros(1, 2), "latent_variance": torch.ones(1, 2)},
    ],
    ids=lambda details: next(iter(details)),
)
def test_every_detail_is_drawn(details: dict[str, torch.Tensor]) -> None:
    plain, with_details = draw_frame(step(IMAGES[1]), {}), draw_frame(step(IMAGES[1]), details)

    assert (plain != with_details).any()
    assert (draw_frame(step(IMAGES[1], output=None, action=None), {}) != plain).any()


def test_an_option_is_drawn_with_its_steps() -> None:
    states = [{"option": torch.tensor([1]), "option_age": torch.tensor([age])} for age in (1, 2)]

    first, second = (draw_frame(step(IMAGES[1], state=state), {}) for state in states)

    assert (first != second).any()


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 3), (84, 84)])
def test_an_observation_of_bytes_is_shown_as_an_image(shape: tuple[int, ...]) -> None:
    dark, light = (torch.full((1, *shape), value, dtype=torch.uint8) for value in (0, 255))

    frames = [draw_frame(step(None, obs), {})[:, :300] for obs in (dark, light)]

    assert frames[0].max() == 0 and frames[1].min() == 255


def test_parts_of_an_observation_are_listed() -> None:
    obs = {"a": torch.zeros(1, 2), "b": torch.ones(1, 1)}

    assert draw_frame(step(None, obs), {}).shape[0] >= 400
