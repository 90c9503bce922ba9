"""make_envs: any environment's name -> one interface of tensors."""

import functools
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from traceback import walk_tb
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec

import datamodules.envs  # noqa: F401  (registers Leyden's own ids)
from datamodules.core.errors import UsageError, nearest
from datamodules.core.protocols import TensorEnv, VectorEnv
from datamodules.core.types import Spaces
from datamodules.env_interface.env_checker import judged_spaces
from datamodules.env_interface.env_errors import exits_refused
from datamodules.env_interface.processes import ENV_TIMEOUT
from datamodules.env_interface.spaces import obs_bound, spaces_of, without_constants
from datamodules.envs.functional_torch_env import observation_space
from datamodules.vector.async_vector_env import AsyncEnvs
from datamodules.vector.envpool_adapter import EnvPoolEnvs
from datamodules.vector.func_vector_env import DeviceEnv
from datamodules.vector.gymnasium_adapter import GymnasiumEnv
from datamodules.vector.restarting_vector_env import RestartingEnvs
from datamodules.vector.sync_vector_env import SyncEnvs
from datamodules.worker_pool.vector_env import PoolEnv

BACKENDS = ("auto", "device", "sync", "async", "vector", "pool", "envpool")
EXTRAS = ("box2d", "mujoco")
"""Gymnasium's extras that are also the project's, with the releases that were tested."""

REFUSALS = (TypeError, ValueError, AssertionError, NotImplementedError, gym.error.Error)
"""What environments raise over their arguments, or where something they need is not there."""

VECTOR_FROM = 8
"""Fewest environments for which `auto` takes a vector entry point instead of `sync`.

Microseconds of one vector step of CartPole-v1 through make_envs (Gymnasium 1.4, one core of two that others use too,
best of three), sync and vector: 61 and 66 at 4 environments, 116 and 73 at 8, 169 and 72 at 16, 631 and 74 at 64, 4600
and 100 at 512. Where they cost the same, sync is better: it has no phantom steps.
"""


class Source(NamedTuple):
    """What a name stands for: functions of tensors (`tensor_env` makes them), a Gymnasium environment, or both."""

    name: str
    tensor_env: Callable[..., TensorEnv] | None
    spec: EnvSpec | None


def make_envs(
    env: str,
    num_envs: int,
    *,
    backend: str = "auto",
    env_kwargs: dict[str, Any] | None = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    seed: int = 0,
    num_workers: int | None = None,
    ranks: int = 1,
    timeout: float | None = None,
    restart: bool = False,
) -> VectorEnv:
    """Many copies of an environment behind one interface.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of a class (`my_module.MyEnv`), which is a
            TensorEnv or a gymnasium.Env.
        num_envs: how many.
        backend: device (on-device tensors), sync (this process), async (a process each), vector (the id's own vector
            entry point), pool (a few processes, many environments in each), envpool (the id's namesake among EnvPool's
            environments, in threads of C++), or auto: device where there is one, else vector from `VECTOR_FROM`
            environments, else sync; never envpool, whose environments are not quite Gymnasium's.
        env_kwargs: keyword arguments of the environment.
        device: where tensors go, and where on-device environments live.
        seed: of the first reset that is given none.
        num_workers: processes of the pool; None takes every core of this rank but one, and two at least.
        ranks: programs like this one that share the host's cores.
        timeout: seconds that an environment in a process (async, pool) may take for its start, a reset or a step; None:
            `ENV_TIMEOUT`.
        restart: make such an environment anew if it raises, dies or hangs.

    Raises: UsageError, one sentence, for a name, number, backend, argument or space that cannot be.
    """
    if num_envs < 1:
        raise UsageError(f"num_envs is {num_envs}; it must be at least 1.")
    kwargs = _checked(env_kwargs)
    if backend == "envpool":
        with _refusals_in_one_sentence(env, backend, kwargs):
            pool = EnvPoolEnvs(env, num_envs, kwargs, ranks=ranks)
            make_one: Callable[[], gym.vector.VectorEnv] = functools.partial(EnvPoolEnvs, env, 1, kwargs)
            return GymnasiumEnv(pool, device=device, seed=seed, name=env, make_one=make_one)
    source = source_of(env)
    backend, timeout = _chosen(source, backend, num_envs), ENV_TIMEOUT if timeout is None else timeout
    with _refusals_in_one_sentence(env, backend, kwargs):
        if backend == "device":
            assert source.tensor_env is not None
            return DeviceEnv(source.tensor_env(**kwargs), num_envs, device=device, seed=seed)
        assert source.spec is not None
        if backend == "pool":
            makers = _makers(source.spec, num_envs, kwargs)
            where: dict[str, Any] = {"num_workers": num_workers, "ranks": ranks, "device": device}
            return PoolEnv(makers, **where, seed=seed, timeout=timeout, restart=restart, name=env)
        vectorised = _vectorised(source.spec, num_envs, backend, kwargs, timeout, restart)
        make_one = functools.partial(_vectorised, source.spec, 1, backend, kwargs, timeout, restart)
        return GymnasiumEnv(vectorised, device=device, seed=seed, name=env, make_one=make_one)


def probe_spaces(env: str, env_kwargs: dict[str, Any] | None = None, backend: str = "auto") -> Spaces:
    """What an environment shows and takes, from one copy on the host that is closed again; CUDA is not touched.

    A Gymnasium environment is reset and stepped once, whichever backend will step its copies: see `judged_spaces`. What
    EnvPool's show and take, which may differ, is asked of their description where `backend` is envpool.

    Raises: UsageError as `make_envs` and `judged_spaces` do.
    """
    kwargs = _checked(env_kwargs)
    if backend == "envpool":
        with _refusals_in_one_sentence(env, backend, kwargs):
            envs = EnvPoolEnvs(env, 1, kwargs)
        return spaces_of(envs.single_observation_space, envs.single_action_space, name=env)
    source = source_of(env)
    with _refusals_in_one_sentence(env, "auto", kwargs):
        if source.tensor_env is not None:
            return _shown(source.tensor_env(**kwargs), env)
        assert source.spec is not None
        one = gym.make(source.spec, disable_env_checker=True, **kwargs)
    with closing(one), exits_refused(env):
        return judged_spaces(one, env)


def _shown(tensor_env: TensorEnv, name: str) -> Spaces:
    """The spaces of an on-device environment as its Gymnasium form has them."""
    bound = obs_bound(observation_space(tensor_env))
    spaces = without_constants(tensor_env.spaces, name)
    return spaces if bound is None else {**spaces, "obs_high": bound}


def source_of(env: str) -> Source:
    """Find what a name stands for, importing the module it names; the command line has asked for trust before.

    Raises: UsageError for an unknown id, with the nearest ones, and for modules that may not or cannot be imported.
    """
    module, _, name = env.rpartition(":")
    if module:
        _imported(module, env)
    if name in gym.registry:
        return _registered(gym.registry[name])
    path, _, attribute = env.rpartition(".")
    if not module and path and all(part.isidentifier() for part in env.split(".")):
        return _class(getattr(_imported(path, env), attribute, None), env)
    like = nearest(name, gym.registry)
    advice = f"did you mean {like}?" if like else "give a Gymnasium id or the dotted path of a class."
    raise UsageError(f"There is no environment {env!r}: {advice}")


def _registered(spec: EnvSpec) -> Source:
    kwargs = dict(spec.kwargs)
    path = kwargs.pop("tensor_env", None)
    if path is None:
        return Source(spec.id, None, spec)
    module, _, name = path.rpartition(".")
    tensor_env = getattr(importlib.import_module(module), name)
    return Source(spec.id, functools.partial(tensor_env, **kwargs), spec)


def _class(found: Any, env: str) -> Source:
    if isinstance(found, type) and issubclass(found, gym.Env):
        return Source(env, None, EnvSpec(id=found.__name__, entry_point=functools.partial(found), order_enforce=False))
    if all(callable(getattr(found, name, None)) for name in ("initial", "transition", "observation", "info")):
        return Source(env, found, None)
    raise UsageError(
        f"{env} is not an environment: name a class that is a gymnasium.Env or has the methods of a TensorEnv."
    )


def _imported(module: str, env: str) -> Any:
    try:
        with exits_refused(module):
            return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"{env} needs the module {module}, which cannot be imported: {error}.") from error


def _checked(env_kwargs: dict[str, Any] | None) -> dict[str, Any]:
    kwargs = dict(env_kwargs or {})
    if "tensor_env" in kwargs:
        raise UsageError("env_kwargs may not contain tensor_env: name the class as the environment instead.")
    return kwargs


def _chosen(source: Source, backend: str, num_envs: int) -> str:
    if backend not in BACKENDS:
        raise UsageError(f"There is no backend {backend!r}: choose one of {', '.join(BACKENDS)}.")
    spec = source.spec
    entry_point = None if spec is None or spec.additional_wrappers else spec.vector_entry_point
    if backend == "auto":
        if source.tensor_env is not None:
            return "device"
        return "vector" if entry_point is not None and num_envs >= VECTOR_FROM else "sync"
    if backend == "device" and source.tensor_env is None:
        raise UsageError(
            f"{source.name} cannot run on the device, it is not made of tensors: choose backend auto, sync or async."
        )
    if backend != "device" and spec is None:
        raise UsageError(
            f"{source.name} is made of tensors and no Gymnasium environment: choose backend auto or device."
        )
    if backend == "vector" and entry_point is None:
        raise UsageError(f"{source.name} has no vector entry point: choose backend auto, sync or async.")
    return backend


def _vectorised(
    spec: EnvSpec, num_envs: int, backend: str, kwargs: dict[str, Any], timeout: float, restart: bool
) -> gym.vector.VectorEnv:
    if backend == "vector":
        return gym.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    makers = _makers(spec, num_envs, kwargs)
    in_processes = RestartingEnvs if restart else AsyncEnvs
    return SyncEnvs(makers) if backend == "sync" else in_processes(makers, name=spec.id, timeout=timeout)


def _makers(spec: EnvSpec, num_envs: int, kwargs: dict[str, Any]) -> list[Callable[[], gym.Env]]:
    return [functools.partial(gym.make, spec, disable_env_checker=True, **kwargs)] * num_envs


@contextmanager
def _refusals_in_one_sentence(env: str, backend: str, kwargs: dict[str, Any]) -> Iterator[None]:
    """Say what an environment's own errors mean to the user.

    Raises: UsageError instead of a missing dependency, refused arguments and errors without a message, of which it
    names type and place; everything else is left as it is.
    """
    try:
        with exits_refused(env):
            yield
    except UsageError:
        raise
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        extra = re.search(r"gymnasium\[([\w, -]+)\]", str(error))
        cure = f"pip install '{extra[0]}'" if extra else str(error).rstrip(".")
        if extra and extra[1] in EXTRAS:
            cure = f"pip install -e '.[{extra[1]}]' in the project's folder"
        raise UsageError(f"{env} needs a package that is not installed: {cure}.") from error
    except Exception as error:
        if str(error) and not isinstance(error, REFUSALS):
            raise
        cause = error.__cause__ or error
        why = str(cause).rstrip(".") or f"{type(cause).__name__}, raised in {_origin(cause)}"
        raise UsageError(f"{env} (backend {backend}) could not be made with env_kwargs {kwargs}: {why}.") from error


def _origin(error: BaseException) -> str:
    """The file and line that raised an error."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}, line {line}"
