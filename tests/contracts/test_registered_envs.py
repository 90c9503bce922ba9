"""Every registered environment: found after one import, checked by Gymnasium, rendered, and stepped as a vector."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import datamodules.envs  # noqa: F401  (registers them)

IDS = sorted(name for name in gymnasium.registry if "datamodules.envs" in str(gymnasium.registry[name].entry_point))
PHYSICAL_UNITS = "we recommend using a symmetric and normalized space"
"""Advice about actions that are in the units of a system."""
INFINITE_BOUND = {"CartPoleDevice-v1"}
"""Environments whose observation space is that of Gymnasium's environment, with infinite velocities."""

every_id = pytest.mark.parametrize("name", IDS)


def test_one_import_that_loads_no_torch_registers_all() -> None:
    script = f"import sys, gymnasium, datamodules.envs\nassert set({IDS!r}) <= set(gymnasium.registry)\n"
    script += "assert 'torch' not in sys.modules\ngymnasium.make('Snake-v0').reset(seed=0)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


@every_id
def test_gymnasiums_checker_passes_with_rendering_and_without_warnings(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gymnasium.make(name, render_mode="rgb_array").unwrapped)

    said = [str(each.message) for each in caught if PHYSICAL_UNITS not in str(each.message)]
    assert not [text for text in said if not (name in INFINITE_BOUND and "infinity" in text)]


@every_id
def test_it_is_rendered_as_pictures_and_as_text(name: str) -> None:
    for mode, kind in (("rgb_array", np.ndarray), ("ansi", str)):
        env = gymnasium.make(name, render_mode=mode, disable_env_checker=True)
        env.reset(seed=0)
        before = env.render()
        env.action_space.seed(0)
        for _ in range(5):
            env.step(env.action_space.sample())
        after = env.render()
        env.close()
        assert isinstance(before, kind) and isinstance(after, kind)
        if isinstance(before, np.ndarray):
            assert before.dtype == np.uint8 and before.ndim == 3 and before.shape[2] == 3
            assert before.min() < before.max(), "the picture is not empty"


@every_id
def test_its_vector_entry_point_has_its_spaces_and_renders(name: str) -> None:
    one = gymnasium.make(name)
    envs = gymnasium.make_vec(name, 3, vectorization_mode="vector_entry_point", render_mode="ansi")

    obs, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    stepped, reward, *_ = envs.step(envs.action_space.sample())

    assert envs.single_observation_space == one.observation_space
    assert envs.single_action_space == one.action_space
    assert obs in envs.observation_space and stepped in envs.observation_space and reward.shape == (3,)
    assert len(envs.render()) == 3 and all(isinstance(text, str) for text in envs.render())
    envs.close()
