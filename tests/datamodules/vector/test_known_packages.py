"""Ids that another package registers: Atari's by itself, the others by name."""

from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from datamodules.core.errors import ConfigurationError
from datamodules.vector import known_packages
from datamodules.vector.make_env import make_vector_env, probe_spaces
from datamodules.vector.resolve_env import resolve_env
from datamodules.wrappers import EpisodicLife

ATARI = all(map(find_spec, ("ale_py", "cv2")))
needs_atari = pytest.mark.skipif(not ATARI, reason="needs the extra atari")
WRAPPERS = (AtariPreprocessing, partial(FrameStackObservation, stack_size=4))
FRAMES = {"frameskip": 1, "repeat_action_probability": 0.0}


def test_a_missing_extra_is_named_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_packages, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"ALE/Pong-v5 needs ale_py, .*pip install -e '.\[atari\]'"):
        resolve_env("ALE/Pong-v5")


@pytest.mark.parametrize(
    ("env", "module"), [("MiniGrid-Empty-5x5-v0", "minigrid"), ("FetchReach-v4", "gymnasium_robotics")]
)
def test_the_package_of_an_unknown_id_is_named(env: str, module: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"write {module}:{env}, and --trust {module} on the command line"):
        resolve_env(env)


@needs_atari
def test_any_game_is_found_by_its_own_id() -> None:
    spaces = probe_spaces("ALE/Breakout-v5", FRAMES, "sync", WRAPPERS)
    assert (spaces["obs_shape"], spaces["obs_dtype"]) == ((4, 84, 84), "uint8")


@needs_atari
def test_frames_are_grey_bytes_stacked_with_the_newest_last() -> None:
    envs = make_vector_env("ALE/Pong-v5", 1, backend="sync", env_kwargs=FRAMES, wrappers=(*WRAPPERS, EpisodicLife))
    before = envs.reset(1)[0].numpy().copy()
    after = envs.envs.step(np.array([2]))[0]  # type: ignore[attr-defined]
    assert (after[0, :-1] == before[0, 1:]).all()


@needs_atari
def test_frames_skipped_twice_are_refused_with_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"AtariPreprocessing cannot be .*set data.env_kwargs.frameskip to 1"):
        probe_spaces("ALE/Pong-v5", None, "sync", WRAPPERS)
