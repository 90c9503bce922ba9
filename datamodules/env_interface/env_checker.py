"""probe_env: check by one reset and one step that an environment follows Gymnasium's API."""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from datamodules.env_interface.spaces import Array, make_action_encoder, make_obs_decoder, to_space_spec

RESET = "a reset returns (obs, info)"
STEP = "a step returns (obs, reward, terminated, truncated, info)"
"""Signature that Gymnasium requires."""


def probe_env(env: gym.Env, name: str) -> SpaceSpec:
    """Reset and step an environment once, check Gymnasium's API, and return its spaces.

    Stricter than Gymnasium only if training would fail: dtypes and bounds may differ from the space's as long as the
    values are preserved. Errors of the environment itself keep their traceback.

    Args:
        env: the environment with its wrappers; it is left in the middle of an episode.
        name: name of the environment in messages.

    Raises:
        ConfigurationError: one sentence for the first violation.
        RuntimeError: from a ValueError of the environment's own, which would be attributed to its arguments.
    """
    for space in ("observation_space", "action_space"):
        if not isinstance(getattr(env, space, None), gym.Space):
            raise _violation(name, f"has no {space}", f"set self.{space} to one of gymnasium.spaces in __init__")
    spaces = to_space_spec(env.observation_space, env.action_space, name=name)
    _require_arguments(env.unwrapped, name)
    env = _wrap_innermost(env, name)
    try:
        obs, info = env.reset(seed=0)
        _require_obs(env.observation_space, obs, name, "reset")
        obs, reward, *ends, _ = env.step(_action(env.action_space, spaces, info))
    except ConfigurationError:
        raise
    except ValueError as error:
        raise RuntimeError(f"{name} raised in its first reset or step.") from error
    _require_obs(env.observation_space, obs, name, "step")
    _require_outcome(reward, ends, name)
    return spaces


class _ReturnChecker(gym.Wrapper):
    """Wrapper that checks an environment's return values before other wrappers process them."""

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        self.name = name

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        result: Any = self.env.reset(**kwargs)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise _violation(self.name, f"returns {_count(result)} from its reset", f"{RESET}, info a dictionary")
        return result

    def step(self, action: Any) -> Any:
        result: Any = self.env.step(action)
        if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict)):
            raise _violation(self.name, f"returns {_count(result)} from its step", f"{STEP}, info a dictionary")
        return result


def _wrap_innermost(env: gym.Env, name: str) -> gym.Env:
    """Insert a checker around the innermost environment, inside of every wrapper."""
    if not isinstance(env, gym.Wrapper):
        return _ReturnChecker(env, name)
    outermost = env
    while isinstance(env.env, gym.Wrapper):
        env = env.env
    env.env = _ReturnChecker(env.env, name)
    return outermost


def _require_arguments(env: gym.Env, name: str) -> None:
    parameters = inspect.signature(env.reset).parameters
    anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    if missing := [each for each in ("seed", "options") if each not in parameters and not anything]:
        raise _violation(
            name, f"takes no {' and no '.join(missing)} in its reset", "write reset(self, *, seed=None, options=None)"
        )


def _require_obs(space: gym.Space, obs: Any, name: str, moment: str, part: str = "") -> None:
    """Raise ConfigurationError for observations of another shape or dtype, or values that training would change."""
    if isinstance(space, gym.spaces.Dict):
        for key, child in space.spaces.items():
            if not isinstance(obs, Mapping) or key not in obs:
                raise _violation(name, f"returns {obs!r:.60} after a {moment}", f"give the part {key} of {space}")
            _require_obs(child, obs[key], name, moment, f" in its part {key}")
        return
    try:
        array = np.asarray(obs)
        kept = array.astype(space.dtype)
    except (TypeError, ValueError):
        raise _violation(name, f"returns {obs!r:.60} after a {moment}{part}", f"return numbers of {space}") from None
    if array.shape != space.shape:
        what = f"returns an observation of shape {array.shape} after a {moment}{part}"
        raise _violation(name, what, f"its observation_space says {space.shape}: change one of them")
    if np.issubdtype(kept.dtype, np.floating) and not np.isfinite(kept).all():
        raise _violation(name, f"returns NaN or infinite numbers after a {moment}{part}", "return finite numbers only")
    if not np.issubdtype(kept.dtype, np.floating) and not np.array_equal(kept, array):
        what = (
            f"returns {array.dtype} numbers after a {moment}{part}, which its observation_space of {space.dtype} cuts"
        )
        raise _violation(name, what, "change one of them")
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary) and not space.contains(kept[()]):
        raise _violation(name, f"returns {obs!r:.60} after a {moment}{part}", f"its observation_space is {space}")
    make_obs_decoder(space)(kept[None])


def _require_outcome(reward: Any, ends: list[Any], name: str) -> None:
    number = np.asarray(reward)
    if number.ndim == 1 and number.size > 1 and number.dtype.kind in "biuf":
        what = f"gives {len(number)} rewards at once, {reward!r:.60}"
        raise _violation(
            name, what, "name a wrapper in data.wrappers that makes one number of them, such as a weighted sum"
        )
    if number.ndim or number.dtype.kind not in "biuf" or not np.isfinite(number).all():
        raise _violation(name, f"gives {reward!r:.60} as reward", f"{STEP}, reward a finite number and no array")
    for key, value in zip(("terminated", "truncated"), ends, strict=True):
        if np.asarray(value).ndim or np.asarray(value).dtype.kind not in "biu":
            raise _violation(name, f"gives {value!r:.60} as {key}", f"{STEP}, {key} True or False")


def _action(space: gym.Space, spaces: SpaceSpec, info: dict[str, Any]) -> Any:
    """Return the first action allowed in every part, or the middle of a Box."""
    if spaces["action_type"] == "continuous":
        policy: Array = (np.asarray(spaces["action_low"]) + np.asarray(spaces["action_high"])) / 2
    else:
        sizes = spaces["action_sizes"]
        mask = np.asarray(info.get("action_mask", np.ones(sum(sizes))), dtype=np.bool_).ravel()
        policy = np.asarray([part.argmax() for part in np.split(mask, np.cumsum(sizes)[:-1])])
        middle = (np.asarray(spaces["action_low"]) + np.asarray(spaces["action_high"])) / 2
        policy = np.concatenate([policy, middle]) if spaces["action_type"] == "hybrid" else policy
    return make_action_encoder(space)(policy[None])[0]


def _count(result: Any) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"


def _violation(name: str, what: str, cure: str) -> ConfigurationError:
    return ConfigurationError(f"{name} {what}: {cure}.")
