"""make_vector_env: create a vector environment with tensors from any environment's name."""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from traceback import walk_tb
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.spaces import Box
from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import TorchFuncEnv, VectorEnv
from datamodules.core.types import SpaceSpec
from datamodules.env_interface.env_checker import probe_env
from datamodules.env_interface.env_errors import exits_refused
from datamodules.env_interface.obs_parts import SplitObservation
from datamodules.env_interface.processes import ENV_TIMEOUT
from datamodules.env_interface.spaces import obs_bound, to_space_spec, without_constants
from datamodules.envs.functional_torch_env import RENDER_MODES, FunctionalTorchEnv, observation_space
from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from datamodules.vector.async_vector_env import SubprocVectorEnv
from datamodules.vector.envpool_adapter import EnvPoolVectorEnv
from datamodules.vector.func_vector_env import TensorVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.resolve_env import ResolvedEnv, resolve_env
from datamodules.vector.restarting_vector_env import RestartingVectorEnv
from datamodules.vector.sync_vector_env import SerialVectorEnv
from datamodules.vector.whole_env import make_whole_vector_env, probe_whole
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from datamodules.wrappers.apply_wrappers import EnvWrapper, make_wrapped_env, wrapper_name

BACKENDS = ("auto", "device", "sync", "async", "vector", "pool", "envpool")
EXTRAS = ("box2d", "mujoco")
"""Gymnasium's extras that are also the project's, with the tested releases."""

REFUSALS = (TypeError, ValueError, AssertionError, NotImplementedError, gym.error.Error)
"""Errors that environments raise for invalid arguments or missing dependencies."""

MIN_ENVS_FOR_VECTOR = 8
"""Fewest environments for which `auto` uses a vector entry point instead of `sync`.

Microseconds per vector step of CartPole-v1 through make_vector_env (Gymnasium 1.4, one core of a shared machine with
two, best of three), sync and vector: 61 and 66 with 4 environments, 116 and 73 with 8, 169 and 72 with 16, 631 and 74
with 64, 4600 and 100 with 512. At equal cost sync is better: it has no autoreset steps.
"""


def make_vector_env(
    env: str,
    num_envs: int,
    *,
    backend: str = "auto",
    env_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[EnvWrapper] = (),
    device: torch.device = torch.device("cpu"),  # noqa: B008
    seed: int = 0,
    num_workers: int | None = None,
    pin_memory: bool = True,
    ranks: int = 1,
    timeout: float | None = None,
    restart: bool = False,
) -> VectorEnv:
    """Create a vector environment of several copies of an environment.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`), the dotted path of a class (`my_module.MyEnv`), which is a
            TorchFuncEnv, a gymnasium.Env, a gymnasium.vector.VectorEnv or a PettingZoo ParallelEnv, or that of a
            PettingZoo module (`mpe2.simple_spread_v3`).
        num_envs: number of environments.
        backend: device (on-device tensors), sync (this process), async (one process per environment), vector (the id's
            vector entry point), pool (several environments in each of a few processes), envpool (EnvPool's environment
            of the same id, in C++ threads), or auto: device if available, else vector from `MIN_ENVS_FOR_VECTOR`
            environments on if it has the same spaces, else sync; never envpool, whose environments differ slightly.
        env_kwargs: keyword arguments of the environment.
        wrappers: wrappers of each Gymnasium environment, the first one innermost; auto then chooses sync.
        device: device of the tensors and of on-device environments.
        seed: seed of the first reset without a seed.
        num_workers: processes of the pool; None uses one less than this rank's cores, and at least two.
        pin_memory: pin the memory of the pool, if the device is a GPU.
        ranks: number of processes that share the host's cores.
        timeout: maximum seconds for the start, a reset or a step of an environment in a process (async, pool); None:
            `ENV_TIMEOUT`.
        restart: restart such an environment if it raises, crashes or exceeds the timeout.

    Raises: ConfigurationError, one sentence, for an invalid name, number, backend, argument or space.
    """
    if num_envs < 1:
        raise ConfigurationError(f"num_envs is {num_envs}; it must be at least 1.")
    kwargs = _checked(env_kwargs)
    if backend == "envpool":
        _refuse_wrappers(wrappers, env, "EnvPool steps its environments in C++")
        with _translate_errors(env, backend, kwargs):
            pool = EnvPoolVectorEnv(env, num_envs, kwargs, ranks=ranks)
            make_one: Callable[[], gym.vector.VectorEnv] = functools.partial(EnvPoolVectorEnv, env, 1, kwargs)
            return GymnasiumVectorAdapter(pool, device=device, seed=seed, name=env, make_one=make_one)
    source = resolve_env(env)
    timeout = ENV_TIMEOUT if timeout is None else timeout
    backend = _choose_backend(source, backend, num_envs, wrappers, kwargs)
    with _translate_errors(env, backend, kwargs):
        source.check_env_kwargs(kwargs, as_gymnasium=backend != "device")
        if backend == "device":
            assert source.tensor_env is not None
            tensor_env = source.tensor_env(**kwargs)
            several = tensor_env.spaces["num_agents"] > 1
            kind = MultiAgentTensorVectorEnv if several else TensorVectorEnv
            return kind(tensor_env, num_envs, device=device, seed=seed)
        if source.spec is None:
            return make_whole_vector_env(source, num_envs, kwargs, device, seed)
        if backend == "pool":
            makers = _makers(source.spec, num_envs, wrappers, kwargs)
            where: dict[str, Any] = {"num_workers": num_workers, "ranks": ranks, "pin_memory": pin_memory}
            return WorkerPoolVectorEnv(
                makers, **where, device=device, seed=seed, timeout=timeout, restart=restart, name=env
            )
        settings = (backend, wrappers, kwargs, timeout, restart)
        vectorised = _make_gymnasium_vector(source.spec, num_envs, *settings)
        make_one = functools.partial(_make_gymnasium_vector, source.spec, 1, *settings)
        return GymnasiumVectorAdapter(vectorised, device=device, seed=seed, name=env, make_one=make_one)


def make_env(
    env: str, env_kwargs: dict[str, Any] | None = None, wrappers: Sequence[EnvWrapper] = (), rendered: bool = True
) -> gym.Env[Any, Any]:
    """Create one Gymnasium environment; `rendered` sets render_mode `rgb_array` if it has it and no other is set.

    Raises: ConfigurationError as `make_vector_env` does, and for environments that are stepped as a whole.
    """
    kwargs, source = _checked(env_kwargs), resolve_env(env)
    if source.is_whole:
        raise ConfigurationError(f"{env} cannot be played as one Gymnasium environment: it {source.what_it_is}.")
    with _translate_errors(env, None, kwargs):
        source.check_env_kwargs(kwargs)
        if source.spec is None:
            mode = {"render_mode": "rgb_array"} if rendered and _render_modes(source) else {}
            return FunctionalTorchEnv(env, **(mode | kwargs))
        if rendered and "rgb_array" in _render_modes(source):
            kwargs = {"render_mode": "rgb_array"} | kwargs
        return make_wrapped_env(source.spec, wrappers, kwargs)


def _render_modes(source: ResolvedEnv) -> Sequence[str]:
    """Return the render modes of an environment's class; of a function that makes it, those of what it makes."""
    if source.tensor_env is not None:
        return RENDER_MODES if hasattr(getattr(source.tensor_env, "func", source.tensor_env), "render") else ()
    assert source.spec is not None
    entry = source.spec.entry_point
    maker = load_env_creator(entry) if isinstance(entry, str) else entry
    kind = getattr(maker, "func", maker)
    if not isinstance(kind, type):
        with closing(gym.make(source.spec, disable_env_checker=True)) as made:
            kind = type(made.unwrapped)
    modes: Sequence[str] = getattr(kind, "metadata", {}).get("render_modes", ())
    return modes


def env_backends(env: str, num_envs: int) -> list[str]:
    """Return the backends that can step an environment, the choice of `auto` first; envpool is not considered.

    Raises: ConfigurationError for an unknown environment.
    """
    source, found = resolve_env(env), []
    for backend in ("auto", *BACKENDS[1:-1]):
        with suppress(ConfigurationError):
            found.append(_choose_backend(source, backend, num_envs, (), {}))
    return list(dict.fromkeys(found))


def probe_spaces(
    env: str,
    env_kwargs: dict[str, Any] | None = None,
    backend: str = "auto",
    wrappers: Sequence[EnvWrapper] = (),
    drop_unsupported_obs: bool = True,
) -> SpaceSpec:
    """Return the spaces of an environment, from one copy on the host that is closed again; CUDA is not initialized.

    A Gymnasium environment is reset and stepped once, whatever the backend: see `probe_env`. For the backends envpool
    and vector the spaces, which may differ, are those of EnvPool and of the vector entry point.

    Args:
        drop_unsupported_obs: drop parts of observations that are no numbers, such as texts, with a warning.

    Raises: ConfigurationError as `make_vector_env` and `probe_env` do, and for such parts that may not be dropped.
    """
    kwargs = _checked(env_kwargs)
    if backend == "envpool":
        _refuse_wrappers(wrappers, env, "EnvPool steps its environments in C++")
        with _translate_errors(env, backend, kwargs):
            envs = EnvPoolVectorEnv(env, 1, kwargs)
        return to_space_spec(envs.single_observation_space, envs.single_action_space, name=env)
    source = resolve_env(env)
    with _translate_errors(env, backend, kwargs):
        on_device = source.tensor_env is not None and not wrappers
        source.check_env_kwargs(kwargs, as_gymnasium=not on_device)
        if source.tensor_env is not None and not wrappers:
            return _shown(source.tensor_env(**kwargs), env)
        if wrappers or source.is_whole:
            _choose_backend(source, backend, MIN_ENVS_FOR_VECTOR, wrappers, kwargs)
        if source.spec is None:
            return probe_whole(source, kwargs)
        one = make_wrapped_env(source.spec, wrappers, kwargs)
    with closing(one), exits_refused(env):
        if isinstance(one, SplitObservation):
            _report_dropped(one.split.dropped, env, drop_unsupported_obs)
        spaces = probe_env(one, env)
    if backend != "vector" or source.spec.vector_entry_point is None:
        return spaces
    with _translate_errors(env, backend, kwargs), closing(_make_vector_of_one(source.spec, kwargs)) as many:
        return to_space_spec(many.single_observation_space, many.single_action_space, name=env)


def _report_dropped(dropped: dict[str, str], env: str, allowed: bool) -> None:
    """Warn of the parts of observations that are dropped; raise ConfigurationError if they may not be."""
    if not dropped:
        return
    parts = " and ".join(f"{name} ({kind})" for name, kind in dropped.items())
    if not allowed:
        raise ConfigurationError(
            f"{env} has observations with {parts}, which no network reads, and data.drop_unsupported_obs is false: set"
            " it to true, or list a wrapper in data.wrappers that turns them into numbers."
        )
    rank_zero_warn(
        f"{env} has observations with {parts}, which no network reads: they are dropped. A wrapper in data.wrappers can"
        " turn them into numbers."
    )


def _shown(tensor_env: TorchFuncEnv, name: str) -> SpaceSpec:
    """Return the spaces of an on-device environment in its Gymnasium form."""
    shown = observation_space(tensor_env)
    bound = obs_bound(shown) if isinstance(shown, Box) else None
    spaces = without_constants(tensor_env.spaces, name)
    return spaces if bound is None else {**spaces, "obs_high": bound}


def _checked(env_kwargs: dict[str, Any] | None) -> dict[str, Any]:
    kwargs = dict(env_kwargs or {})
    if "tensor_env" in kwargs:
        raise ConfigurationError("env_kwargs may not contain tensor_env: name the class as the environment instead.")
    return kwargs


def _choose_backend(
    source: ResolvedEnv, backend: str, num_envs: int, wrappers: Sequence[EnvWrapper], kwargs: dict[str, Any]
) -> str:
    if backend not in BACKENDS:
        raise ConfigurationError(f"There is no backend {backend!r}: choose one of {', '.join(BACKENDS)}.")
    if source.is_whole:
        return _choose_whole(source, backend, wrappers)
    spec = source.spec
    entry_point = None if spec is None or spec.additional_wrappers else spec.vector_entry_point
    if backend == "auto":
        if source.tensor_env is not None:
            backend = "device"
        elif entry_point is not None and num_envs >= MIN_ENVS_FOR_VECTOR and not wrappers:
            assert spec is not None
            return "vector" if _vector_has_same_spaces(spec, kwargs) else "sync"
        else:
            return "sync"
    if backend == "device" and source.tensor_env is None:
        raise ConfigurationError(
            f"{source.name} is not an on-device environment: choose backend auto, sync or async, not device."
        )
    if backend != "device" and spec is None:
        raise ConfigurationError(
            f"{source.name} is an on-device environment, not a Gymnasium environment: choose backend auto or device,"
            f" not {backend}."
        )
    if backend == "device":
        _refuse_wrappers(wrappers, source.name, "its environments are stepped as tensors", bool(spec))
    if backend == "vector":
        _refuse_wrappers(wrappers, source.name, "its vector entry point steps all copies at once")
    if backend == "vector" and entry_point is None:
        raise ConfigurationError(
            f"{source.name} has no vector entry point: choose backend auto, sync or async, not vector."
        )
    return backend


def _vector_has_same_spaces(spec: EnvSpec, kwargs: dict[str, Any]) -> bool:
    """Return whether a vector entry point steps the environment itself, not one with preprocessing such as Atari's."""
    try:
        with closing(_make_vector_of_one(spec, kwargs)) as many:
            found = many.single_observation_space, many.single_action_space
    except TypeError:  # it does not take the arguments
        return False
    with closing(gym.make(spec, disable_env_checker=True, **kwargs)) as one:
        return found == (one.observation_space, one.action_space)


def _make_vector_of_one(spec: EnvSpec, kwargs: dict[str, Any]) -> gym.vector.VectorEnv:
    return gym.make_vec(spec, 1, vectorization_mode="vector_entry_point", **kwargs)


def _choose_whole(source: ResolvedEnv, backend: str, wrappers: Sequence[EnvWrapper]) -> str:
    """Return the backend of an environment that is stepped as a whole, of which each has one."""
    only = "sync" if source.parallel_env is not None else "vector"
    _refuse_wrappers(wrappers, source.name, f"it {source.what_it_is}", False)
    if backend not in ("auto", only):
        raise ConfigurationError(f"{source.name} {source.what_it_is}: choose backend auto or {only}, not {backend}.")
    return only


def _refuse_wrappers(wrappers: Sequence[EnvWrapper], name: str, why: str, is_single: bool = True) -> None:
    """Raise ConfigurationError if there are wrappers, which need environments that are stepped one by one."""
    if wrappers:
        cure = "choose backend sync, async or pool, or" if is_single else "remove them, and"
        raise ConfigurationError(
            f"data.wrappers ({', '.join(map(wrapper_name, wrappers))}) cannot be applied to {name}, because {why}:"
            f" {cure} change the environment by its env_kwargs."
        )


def _make_gymnasium_vector(
    spec: EnvSpec,
    num_envs: int,
    backend: str,
    wrappers: Sequence[EnvWrapper],
    kwargs: dict[str, Any],
    timeout: float,
    restart: bool,
) -> gym.vector.VectorEnv:
    if backend == "vector":
        return gym.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    makers = _makers(spec, num_envs, wrappers, kwargs)
    in_processes = RestartingVectorEnv if restart else SubprocVectorEnv
    return SerialVectorEnv(makers) if backend == "sync" else in_processes(makers, name=spec.id, timeout=timeout)


def _makers(
    spec: EnvSpec, num_envs: int, wrappers: Sequence[EnvWrapper], kwargs: dict[str, Any]
) -> list[Callable[[], gym.Env]]:
    return [functools.partial(make_wrapped_env, spec, wrappers, kwargs)] * num_envs


@contextmanager
def _translate_errors(env: str, backend: str | None, kwargs: dict[str, Any]) -> Iterator[None]:
    """Translate an environment's errors at creation into user errors.

    Args:
        env, kwargs: its name and arguments.   backend: of a vector environment; None for a single environment.

    Raises: ConfigurationError instead of a missing dependency, refused arguments and errors without a message, with
    their type and location; other errors are unchanged.
    """
    try:
        with exits_refused(env):
            yield
    except ConfigurationError:
        raise
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        extra = re.search(r"gymnasium\[([\w, -]+)\]", str(error))
        cure = f"pip install '{extra[0]}'" if extra else str(error).rstrip(".")
        if extra and extra[1] in EXTRAS:
            cure = f"pip install -e '.[{extra[1]}]' in the project's folder"
        raise ConfigurationError(f"{env} needs a package that is not installed: {cure}.") from error
    except Exception as error:
        if str(error) and not isinstance(error, REFUSALS):
            raise
        cause = error.__cause__ or error
        why = str(cause).rstrip(".") or f"{type(cause).__name__}, raised in {_origin(cause)}"
        name = f"{env} (backend {backend})" if backend else env
        raise ConfigurationError(f"{name} could not be created with env_kwargs {kwargs}: {why}.") from error


def _origin(error: BaseException) -> str:
    """Return the file and line that raised an error."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}, line {line}"
