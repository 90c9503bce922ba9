"""EnvPool's environments, which are written and stepped in C++, as one of Gymnasium's vector environments."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import gymnasium as gym
from gymnasium.spaces import Box, Discrete, MultiBinary
from gymnasium.vector import AutoresetMode

from datamodules.core.errors import UsageError, nearest
from datamodules.core.seeding import env_seeds
from datamodules.worker_pool.vector_env import cores_of_rank

DECIDED = (
    "num_envs",
    "batch_size",
    "seed",
    "env_seed",
    "max_num_players",
    "gym_reset_return_info",
    "task",
    "base_path",
)
"""Arguments of EnvPool's that are not the user's to give."""

COUNTS = ("num_threads", "max_episode_steps", "frame_skip", "stack_num", "img_height", "img_width", "noop_max")
"""Arguments that are at least 1: other numbers are taken, and end the process with some of them."""


class EnvPoolEnvs(gym.vector.VectorEnv):
    """Environments of EnvPool 1.2, each reset in the step after the one that ended its episode.

    An id that Gymnasium has too names another implementation there: neither the random numbers nor every last bit of
    the physics are the same, and spaces and arguments may differ. Of an episode that ends by itself in the very step of
    its time limit EnvPool tells only that it was truncated.

    Args:
        env: EnvPool's id (`CartPole-v1`, `Pong-v5`, `HalfCheetah-v4`).
        num_envs: how many.
        env_kwargs: EnvPool's arguments for the id, and `num_threads`, one for every core of this rank unless given.
        ranks: programs like this one that share the host's cores.

    Raises: UsageError without the package, and for ids, arguments and spaces that are not taken.
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
        """Start every environment anew; options are not read.

        A pool takes seeds only where it is made, so that a seed makes a new one. Each environment is given its own:
        from one for all EnvPool counts up, so that of two seeds in a row most episodes would be the same.
        """
        if self._pool is None or seed is not None:
            self._pool = None  # the threads of one end before those of another begin
            with _no_warnings():
                self._pool = self._make(seed=env_seeds(seed, self.num_envs).tolist())
                return self._pool.reset()
        return self._pool.reset()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Advance every environment by one step."""
        return self._pool.step(actions)

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads, which live as long as the pool."""
        self._pool = None


def _imported() -> Any:
    try:
        import envpool  # an extra
    except (ImportError, OSError) as error:  # without its assets it finds no file
        raise UsageError(
            f"backend envpool needs the package envpool, which cannot be imported ({error}): "
            "pip install -e '.[envpool]' in the project's folder."
        ) from error
    return envpool


def _require_arguments(kwargs: dict[str, Any]) -> None:
    if refused := [name for name in DECIDED if name in kwargs]:
        raise UsageError(f"env_kwargs may not contain {refused[0]}, which backend envpool sets itself: remove it.")
    for name in (name for name in COUNTS if name in kwargs):
        value = kwargs[name]
        wrong = value < 1 if type(value) is int else name == "num_threads" or isinstance(value, bool)
        if wrong:
            raise UsageError(f"env_kwargs.{name} is {value}; it must be a whole number of at least 1.")


def _spec(envpool: Any, env: str, kwargs: dict[str, Any]) -> Any:
    """EnvPool's description of an environment, for which none is made.

    Raises: UsageError for an unknown id, an unknown argument and values that are not taken.
    """
    known = envpool.list_all_envs()
    if env not in known:
        like = nearest(env, known)
        advice = f"name {like}, or choose another backend" if like else "choose another backend"
        raise UsageError(f"EnvPool has no environment {env!r}: {advice}.")
    try:
        return envpool.make_spec(env, **kwargs)
    except TypeError as error:
        own = envpool.make_spec(env).config._asdict()
        if unknown := [name for name in kwargs if name not in own]:
            taken = ", ".join(sorted(set(own) - set(DECIDED)))
            raise UsageError(f"{env} (backend envpool) takes no env_kwargs.{unknown[0]}; it takes {taken}.") from error
        other = {name: own[name] for name, value in kwargs.items() if not isinstance(value, type(own[name]))}
        if not other:
            raise
        given = {name: kwargs[name] for name in other}
        raise UsageError(
            f"{env} (backend envpool) could not be made with env_kwargs {given}: give them the types of {other}."
        ) from error
    except RuntimeError as error:
        raise UsageError(f"{env} (backend envpool) could not be made with env_kwargs {kwargs}: {error}.") from error


def _require_arrays(env: str, observation: Any, action: Any, players: int) -> None:
    if players > 1:
        raise UsageError(
            f"{env} has {players} players, and of EnvPool's environments only those with one are taken: choose another."
        )
    if not isinstance(observation, Box | Discrete | MultiBinary) or not isinstance(action, Box | Discrete):
        raise UsageError(
            f"{env} shows a {type(observation).__name__} and takes a {type(action).__name__}, and of EnvPool's "
            "environments only those with one array of each are taken: choose another, or another backend."
        )


@contextmanager
def _no_warnings() -> Iterator[None]:
    """EnvPool states bounds in more digits than float32 has, about which Gymnasium warns wherever a space is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
