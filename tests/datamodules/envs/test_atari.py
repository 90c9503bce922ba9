from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest

import datamodules.envs  # noqa: F401  (registers it)
from datamodules.core.errors import ConfigurationError
from datamodules.envs import atari


def test_a_missing_package_is_named_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "NEEDED", {"no_such_package": "the games"})
    with pytest.raises(ConfigurationError, match=r"ALE/Pong-v5 needs no_such_package for the games: pip install"):
        gym.make("AtariPong-v0")


@pytest.mark.skipif(not all(map(find_spec, atari.NEEDED)), reason="needs the extra atari")
def test_frames_are_grey_bytes_stacked_with_the_newest_last() -> None:
    env = gym.make("AtariPong-v0")
    before, _ = env.reset(seed=1)
    after, *_ = env.step(env.action_space.sample())
    assert (after.shape, after.dtype) == ((4, 84, 84), np.uint8)
    assert (after[:-1] == before[1:]).all()
