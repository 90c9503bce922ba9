"""resolve_env: find what an environment's name stands for."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

import datamodules.envs  # noqa: F401  (registers Leyden's own ids)
from datamodules.core.arguments import check_arguments, check_names, signature
from datamodules.core.errors import ConfigurationError, nearest, public_classes, suggest_names
from datamodules.core.protocols import TorchFuncEnv
from datamodules.env_interface.env_errors import exits_refused
from datamodules.envs.functional_torch_env import is_own
from datamodules.vector.envpool_adapter import EnvPoolVectorEnv
from datamodules.vector.known_packages import advice_on_package, register_atari

EXTRA_OF = {"mpe2": "pettingzoo", "pettingzoo": "pettingzoo"}
"""Extra of the project that installs a module of environments."""

MAKE_ARGUMENTS = ("max_episode_steps", "render_mode")
"""Arguments that `gymnasium.make` takes for every environment."""

KINDS = (
    "name a class that is a gymnasium.Env, a gymnasium.vector.VectorEnv or a PettingZoo ParallelEnv, or has the methods"
    " of a TorchFuncEnv, or a PettingZoo module with parallel_env"
)


class ResolvedEnv(NamedTuple):
    """What an environment's name stands for; the makers that it has are not None.

    tensor_env: on-device functions.   spec: a Gymnasium environment; on-device ones may have both.
    vector_env: a Gymnasium vector environment that exists only as such.   parallel_env: a PettingZoo environment.
    """

    name: str
    tensor_env: Callable[..., TorchFuncEnv] | None = None
    spec: EnvSpec | None = None
    vector_env: Callable[..., gym.vector.VectorEnv] | None = None
    parallel_env: Callable[..., Any] | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether it is stepped as a whole: a PettingZoo environment, or one that exists only as a vector."""
        return self.parallel_env is not None or self.vector_env is not None

    @property
    def what_it_is(self) -> str:
        """Return, for messages, what an environment that is stepped as a whole is."""
        if self.parallel_env is not None:
            return "is a PettingZoo environment, whose agents are stepped together in this process"
        return "exists only as a vector environment"

    @property
    def has_fixed_num_envs(self) -> bool:
        """Return whether it is a vector environment that is not told its number of environments."""
        if self.vector_env is None:
            return False
        taken = signature(self.vector_env)
        return not (taken.takes_kwargs or "num_envs" in taken.hints)

    def check_env_kwargs(self, kwargs: Mapping[str, Any], where: str = "env_kwargs", as_gymnasium: bool = True) -> None:
        """Check the arguments of the environment: names, and types if it is on-device, one of Leyden's or Gymnasium's.

        Gymnasium's classes state types that they do not require, such as a tuple for a list: only numbers, bools and
        texts are checked. Leyden's environments take finite numbers only.

        Args:
            kwargs: the arguments.   where: the setting in messages.
            as_gymnasium: whether it is made by Gymnasium, which takes `MAKE_ARGUMENTS` too.

        Raises: ConfigurationError for the first argument that is wrong, with its name, its value and its type.
        """
        other = {name: value for name, value in kwargs.items() if name not in MAKE_ARGUMENTS}
        given = other if as_gymnasium and self.spec is not None else kwargs
        maker: Any = self.tensor_env or self.vector_env or self.parallel_env
        if maker is None:
            assert self.spec is not None
            entry: Any = self.spec.entry_point
            maker = partial(load_env_creator(entry) if isinstance(entry, str) else entry, **self.spec.kwargs)
        own = is_own(maker)
        if own or self.tensor_env is not None:
            return check_arguments(maker, given, self.name, f"{where}.", finite=own)
        if str(getattr(getattr(maker, "func", maker), "__module__", "")).startswith("gymnasium.envs."):
            return check_arguments(maker, given, self.name, f"{where}.", finite=False, scalars_only=True)
        return check_names(maker, given, self.name, f"{where}.")


def resolve_env(env: str, backend: str = "auto") -> ResolvedEnv:
    """Resolve an environment name, importing its module; the command line has checked trust before.

    Args:
        env: the name.
        backend: `envpool` takes it as an id of EnvPool, whose environments are no Gymnasium ones of the same name.

    Raises: ConfigurationError for an unknown id, with similar ones, and for modules that may not or cannot be
        imported.
    """
    if backend == "envpool":
        return ResolvedEnv(env, vector_env=partial(EnvPoolVectorEnv, env))
    module, _, name = env.rpartition(":")
    if module:
        _imported(module, env)
    register_atari(name)
    if name in gym.registry:
        return _registered(gym.registry[name])
    path, _, attribute = env.rpartition(".")
    if not module and path and all(part.isidentifier() for part in env.split(".")):
        return _member(_imported(path, env), attribute, env)
    like = suggest_names(name, gym.registry)
    advice = f"did you mean {like}?" if like else "give a Gymnasium id or the dotted path of a class."
    if not module:
        advice = advice_on_package(name) or advice
    package, _, rest = env.partition("/")
    if package in EXTRA_OF:
        advice = f"a PettingZoo environment is named by its module, {package}.{rest.replace('/', '.')}."
    raise ConfigurationError(f"There is no environment {env!r}: {advice}")


def _registered(spec: EnvSpec) -> ResolvedEnv:
    if spec.entry_point is None:
        make = partial(gym.make_vec, spec, vectorization_mode="vector_entry_point")
        return ResolvedEnv(spec.id, vector_env=make)
    kwargs = dict(spec.kwargs)
    path = kwargs.pop("tensor_env", None)
    if path is None:
        return ResolvedEnv(spec.id, spec=spec)
    module, _, name = path.rpartition(".")
    tensor_env = getattr(importlib.import_module(module), name)
    return ResolvedEnv(spec.id, partial(tensor_env, **kwargs), spec)


def _member(module: ModuleType, name: str, env: str) -> ResolvedEnv:
    """Resolve an attribute or submodule of a module; suggest its environments for a name that it lacks."""
    member = _attribute(module, name)
    if isinstance(member, ModuleType):
        return _pettingzoo_module(member, env)
    if (resolved := _of_object(member, env)) is not None:
        return resolved
    classes = public_classes(module) if member is None else []
    environments = [each for each in classes if _of_object(getattr(module, each), env) is not None]
    if environments:
        raise ConfigurationError(f"The module `{module.__name__}` has no `{name}`: {nearest(name, environments)}")
    raise ConfigurationError(f"{env} is not an environment: {KINDS}.")


def _of_object(member: Any, env: str) -> ResolvedEnv | None:
    """Return what a class or function of environments stands for; None for any other object."""
    if isinstance(member, type) and issubclass(member, gym.Env):
        spec = EnvSpec(id=member.__name__, entry_point=partial(member), order_enforce=False)
        return ResolvedEnv(env, spec=spec)
    if isinstance(member, type) and issubclass(member, gym.vector.VectorEnv):
        return ResolvedEnv(env, vector_env=member)
    if all(callable(getattr(member, name, None)) for name in ("initial", "transition", "observation", "info")):
        return ResolvedEnv(env, tensor_env=member)
    methods = ("reset", "step", "observation_space", "action_space")
    if getattr(member, "__name__", "") == "parallel_env" or all(
        callable(getattr(member, each, None)) for each in methods
    ):
        return ResolvedEnv(env, parallel_env=member)
    return None


def _pettingzoo_module(module: ModuleType, env: str) -> ResolvedEnv:
    if hasattr(module, "parallel_env"):
        return ResolvedEnv(env, parallel_env=module.parallel_env)
    if hasattr(module, "raw_env"):
        raise ConfigurationError(
            f"{env} has no parallel_env: its agents act one after the other, and only environments whose agents act at"
            " the same time are supported. Turn it into one with pettingzoo.utils.conversions.aec_to_parallel."
        )
    raise ConfigurationError(f"{env} is not an environment: {KINDS}.")


def _attribute(module: Any, name: str) -> Any:
    """Return an attribute of a module, or its submodule of this name."""
    path = f"{module.__name__}.{name}"
    if hasattr(module, "__path__") and not hasattr(module, name) and importlib.util.find_spec(path) is not None:
        return _imported(path, path)
    return getattr(module, name, None)


def _imported(module: str, env: str) -> Any:
    try:
        with exits_refused(module):
            return importlib.import_module(module)
    except ImportError as error:
        extra = EXTRA_OF.get(module.partition(".")[0])
        cure = f": pip install -e '.[{extra}]' in the project's folder" if extra else ""
        raise ConfigurationError(
            f"{env} needs the module {module}, which cannot be imported: {error}{cure}."
        ) from error
