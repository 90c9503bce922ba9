"""EnvPoolVectorEnv: EnvPool's C++ environments as a Gymnasium vector environment."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import gymnasium as gym
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.vector import AutoresetMode

from datamodules.core.errors import ConfigurationError, suggest_names
from datamodules.core.seeding import env_seeds
from datamodules.worker_pool.vector_env import cores_of_rank

RESERVED_KWARGS = (
    "num_envs",
    "batch_size",
    "seed",
    "env_seed",
    "max_num_players",
    "gym_reset_return_info",
    "task",
    "base_path",
)
"""EnvPool arguments that are set by Leyden and cannot be given."""

POSITIVE_INT_KWARGS = (
    "num_threads",
    "max_episode_steps",
    "frame_skip",
    "stack_num",
    "img_height",
    "img_width",
    "noop_max",
)
"""EnvPool arguments that must be at least 1; EnvPool does not check them, and some other values end the process."""


class EnvPoolVectorEnv(gym.vector.VectorEnv):
    """EnvPool 1.2 environments with next-step autoreset.

    Environments that share an id with Gymnasium are other implementations: random numbers and the last bits of the
    physics differ, and spaces and arguments may. An episode that terminates in the step of its time limit is reported
    by EnvPool as truncated only.

    Args:
        env: EnvPool id (`CartPole-v1`, `Pong-v5`, `HalfCheetah-v4`).
        num_envs: number of environments.
        env_kwargs: EnvPool's arguments for the id, and `num_threads` (default: one per core of this rank).
        ranks: number of processes that share the host's cores.

    Raises: ConfigurationError if EnvPool is missing, and for unsupported ids, arguments and spaces.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, env: str, num_envs: int, env_kwargs: dict[str, Any] | None = None, *, ranks: int = 1):
        kwargs = {"num_threads": cores_of_rank(ranks)} | (env_kwargs or {})
        _require_arguments(kwargs)
        kwargs["num_threads"] = min(kwargs["num_threads"], num_envs)
        self.num_envs, self._pool = num_envs, cast(Any, None)
        envpool = _imported()
        with _no_warnings():
            spec = _spec(envpool, env, kwargs)
            self.single_observation_space, self.single_action_space = spec.observation_space, spec.action_space
        _require_arrays(env, self.single_observation_space, self.single_action_space, spec.config.max_num_players)
        self._make = partial(envpool.make_gymnasium, env, num_envs=num_envs, **kwargs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset every environment; options are ignored.

        EnvPool takes seeds only at creation, so that a seed creates a new pool. Each environment gets its own seed:
        EnvPool would count up from a single one, so that two consecutive seeds would share most episodes.
        """
        if self._pool is None or seed is not None:
            self._pool = None  # end the threads of the old pool before creating the new one
            with _no_warnings():
                self._pool = self._make(seed=env_seeds(seed, self.num_envs).tolist())
                return self._pool.reset()
        return self._pool.reset()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment."""
        return self._pool.step(actions)

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads, which live as long as the pool."""
        self._pool = None


def _imported() -> Any:
    try:
        import envpool  # optional dependency
    except (ImportError, OSError) as error:  # OSError: its assets are missing
        raise ConfigurationError(
            f"backend envpool needs the package envpool, which cannot be imported ({error}): "
            "pip install -e '.[envpool]' in the project's folder."
        ) from error
    return envpool


def _require_arguments(kwargs: dict[str, Any]) -> None:
    if refused := [name for name in RESERVED_KWARGS if name in kwargs]:
        raise ConfigurationError(
            f"env_kwargs may not contain {refused[0]}, which backend envpool sets itself: remove it."
        )
    for name in (name for name in POSITIVE_INT_KWARGS if name in kwargs):
        value = kwargs[name]
        wrong = value < 1 if type(value) is int else name == "num_threads" or isinstance(value, bool)
        if wrong:
            raise ConfigurationError(f"env_kwargs.{name} is {value}; it must be a whole number of at least 1.")


def _spec(envpool: Any, env: str, kwargs: dict[str, Any]) -> Any:
    """Return EnvPool's specification of an environment, without creating it.

    Raises: ConfigurationError for an unknown id, an unknown argument and unsupported values.
    """
    known = envpool.list_all_envs()
    if env not in known:
        like = suggest_names(env, known)
        advice = f"name {like}, or choose another backend" if like else "choose another backend"
        raise ConfigurationError(f"EnvPool has no environment {env!r}: {advice}.")
    try:
        return envpool.make_spec(env, **kwargs)
    except TypeError as error:
        own = envpool.make_spec(env).config._asdict()
        if unknown := [name for name in kwargs if name not in own]:
            taken = ", ".join(sorted(set(own) - set(RESERVED_KWARGS)))
            raise ConfigurationError(
                f"{env} (backend envpool) takes no env_kwargs.{unknown[0]}; it takes {taken}."
            ) from error
        other = {name: own[name] for name, value in kwargs.items() if not isinstance(value, type(own[name]))}
        if not other:
            raise
        given = {name: kwargs[name] for name in other}
        raise ConfigurationError(
            f"{env} (backend envpool) could not be created with env_kwargs {given}: give them the types of {other}."
        ) from error
    except RuntimeError as error:
        raise ConfigurationError(
            f"{env} (backend envpool) could not be created with env_kwargs {kwargs}: {error}."
        ) from error


def _require_arrays(env: str, observation: Any, action: Any, players: int) -> None:
    if players > 1:
        raise ConfigurationError(
            f"{env} has {players} players, but only EnvPool environments with one player are supported: choose another."
        )
    if not isinstance(observation, Box | Discrete | MultiBinary) or not isinstance(action, Box | Discrete):
        raise ConfigurationError(
            f"{env} has {type(observation).__name__} observations and {type(action).__name__} actions, but only "
            "EnvPool environments with one array of each are supported: choose another, or another backend."
        )


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Suppress Gymnasium's warnings about EnvPool's bounds, which have more digits than float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
