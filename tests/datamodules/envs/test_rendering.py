import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import datamodules.envs  # noqa: F401  (registers the ids)

RENDERED = sorted(name for name in gymnasium.registry if name == "Snake-v0" or "Device-v" in name or "MinAtar" in name)

every_env = pytest.mark.parametrize("name", [name for name in RENDERED if "/" not in name])


@every_env
def test_gymnasiums_checker_has_nothing_to_say(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized)")
        check_env(gymnasium.make(name, render_mode="rgb_array").unwrapped)


@every_env
def test_renders_as_image_and_as_text(name: str) -> None:
    image, texts = gymnasium.make(name, render_mode="rgb_array"), gymnasium.make_vec(name, 2, render_mode="ansi")
    image.reset(seed=0), texts.reset(seed=0)
    first = image.render()
    image.action_space.seed(0)
    for _ in range(13):
        image.step(image.action_space.sample())

    assert first.dtype == np.uint8 and first.shape[2] == 3 and len(np.unique(first.reshape(-1, 3), axis=0)) > 1
    assert not np.array_equal(first, image.render())
    assert [len(text.splitlines()) > 9 for text in texts.render()] == [True, True]
