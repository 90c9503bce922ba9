"""Apply the wrappers of a configuration to an environment, and represent them as plain data."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from datamodules.core.errors import ConfigurationError
from datamodules.core.exports import class_path
from datamodules.env_interface.action_parts import join_actions
from datamodules.env_interface.obs_parts import split_observation

EnvWrapper = Callable[[gym.Env], gym.Env]
"""A wrapper class, or a `functools.partial` of one with its arguments."""

OWN_STATISTICS = (
    "keeps its own running statistics in every copy of the environment, which neither evaluations nor checkpoints share"
)
REFUSED = {
    "Autoreset": "the backends reset environments: remove it",
    "NormalizeObservation": f"{OWN_STATISTICS}: set model.normalize_obs, where the algorithm has it, instead",
}
"""Gymnasium's wrappers that cannot be used, and why."""

TRAIN_ONLY = {"NormalizeReward": f"{OWN_STATISTICS}, and evaluations report rewards: move it to data.train_wrappers"}
"""Gymnasium's wrappers for training only, and why."""

CURES = {
    "cv2": "it needs OpenCV, pip install opencv-python-headless",  # Gymnasium's advice needs a display
    "frame-skipping": "it skips frames itself, so set data.env_kwargs.frameskip to 1",
}
"""Clearer reasons, by a word of Gymnasium's."""

CREATION_ERRORS = (TypeError, ValueError, AttributeError, AssertionError, ImportError, gym.error.Error)
"""Errors that wrappers raise for environments or arguments that they do not support."""


def make_wrapped_env(spec: EnvSpec, wrappers: Sequence[EnvWrapper], kwargs: dict[str, Any]) -> gym.Env:
    """Create a Gymnasium environment and apply wrappers, the first one innermost; split observations, join actions.

    Raises: ConfigurationError for a wrapper that does not support the environment; the environment's own errors are
        unchanged.
    """
    env = gym.make(spec, disable_env_checker=True, **kwargs)
    for wrapper in wrappers:
        env = _wrapped(env, wrapper, spec.id)
    return split_observation(join_actions(env, spec.id), spec.id)


def _wrapped(env: gym.Env, wrapper: EnvWrapper, name: str) -> gym.Env:
    try:
        outer = wrapper(env)
    except ConfigurationError:
        raise
    except CREATION_ERRORS as error:
        why = str(error).rstrip(".") or type(error).__name__
        why = next((cure for word, cure in CURES.items() if word in why), why)
        raise ConfigurationError(f"The wrapper {wrapper_name(wrapper)} cannot be applied to {name}: {why}.") from error
    if not isinstance(outer, gym.Env):
        raise ConfigurationError(
            f"The wrapper {wrapper_name(wrapper)} makes a {type(outer).__name__} of {name}, not a gymnasium.Env: name a"
            " subclass of gymnasium.Wrapper."
        )
    return outer


def resolve_wrappers(wrappers: Sequence[EnvWrapper] | None, setting: str) -> tuple[EnvWrapper, ...]:
    """Return wrappers as classes or partials of classes, which can be sent to processes.

    Args:
        wrappers: as given by the command line or in Python.
        setting: name of the setting in messages.

    Raises: ConfigurationError for something that is no wrapper, and for those in `REFUSED` and `TRAIN_ONLY`.
    """
    resolved = tuple(_without_instantiator(each) for each in wrappers or ())
    refused = REFUSED if setting == "train_wrappers" else REFUSED | TRAIN_ONLY
    for each in resolved:
        if not callable(each):
            raise ConfigurationError(
                f"data.{setting} contains {each!r}: in Python give wrapper classes, or functools.partial of a class"
                " with its arguments."
            )
        kind, name = _kind(each), wrapper_name(each)
        if name in refused and str(kind.__module__).startswith("gymnasium."):
            raise ConfigurationError(f"data.{setting} contains {name}, which is refused: it {refused[name]}.")
    return resolved


def _without_instantiator(wrapper: EnvWrapper) -> EnvWrapper:
    """Return the parser's deferred class as a partial of that class."""
    if isinstance(wrapper, functools.partial) and wrapper.args and isinstance(wrapper.args[-1], type):
        return functools.partial(wrapper.args[-1], **wrapper.keywords)
    return wrapper


def _kind(wrapper: EnvWrapper) -> Any:
    return wrapper.func if isinstance(wrapper, functools.partial) else wrapper


def wrapper_name(wrapper: EnvWrapper) -> str:
    """Return the name of a wrapper's class or function."""
    return str(getattr(_kind(wrapper), "__name__", wrapper))


def plain_wrappers(wrappers: Sequence[EnvWrapper | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return wrappers as the parser saves them: `class_path`, and `init_args` with defaults; other values as text."""
    return [_value(each) if isinstance(each, Mapping) else _plain(each) for each in wrappers]


def _plain(wrapper: EnvWrapper) -> dict[str, Any]:
    kind = _kind(wrapper)
    _, *parameters = inspect.signature(kind).parameters.values()
    arguments = {each.name: each.default for each in parameters if each.default is not each.empty}
    arguments |= getattr(wrapper, "keywords", {})
    plain: dict[str, Any] = {"class_path": _path(kind)}
    return plain | ({"init_args": {key: _value(value) for key, value in arguments.items()}} if arguments else {})


def _path(kind: Any) -> str:
    name = getattr(kind, "__name__", "")
    if getattr(gym.wrappers, name, None) is kind:
        return f"gymnasium.wrappers.{name}"
    return class_path(kind) if isinstance(kind, type) else f"{kind.__module__}.{kind.__qualname__}"


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)
