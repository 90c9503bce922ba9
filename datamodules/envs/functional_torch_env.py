"""On-device environments as Gymnasium environments, for other tools and Gymnasium's `check_env`.

An environment that can be rendered has `render(state, row, mode)` for the modes `rgb_array` and `ansi`; one whose
observations are bounded floats has `obs_bounds`, (low, high). Both are optional.
"""

import importlib
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor

from datamodules.core.arguments import check_arguments
from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import TorchFuncEnv
from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, ObsPart, SpaceSpec
from datamodules.env_interface.action_parts import HybridSpace

RENDER_MODES = ("rgb_array", "ansi")
METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}


class FunctionalTorchEnv(gymnasium.Env[np.ndarray, Any]):
    """Gymnasium environment of one row of a `TorchFuncEnv`; random numbers are from `np_random`.

    Args:
        tensor_env: dotted path of the environment's class, such as `datamodules.envs.snake.env.Snake`.
        render_mode: `rgb_array`, `ansi` or None.
        **kwargs: arguments of the environment.

    Raises:
        ConfigurationError: if the path is invalid, the environment has several agents or cannot be rendered.
    """

    metadata = METADATA

    def __init__(self, tensor_env: str, render_mode: str | None = None, **kwargs: Any) -> None:
        self.tensor_env = make_tensor_env(tensor_env, render_mode, kwargs)
        self.render_mode = render_mode
        self.observation_space = observation_space(self.tensor_env)
        self.action_space = action_space(self.tensor_env.spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; options are not supported."""
        super().reset(seed=seed)
        self.state = self.tensor_env.initial(draw_noise(self.np_random, 1, self.tensor_env))
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment."""
        noise = draw_noise(self.np_random, 1, self.tensor_env)
        actions = action_tensor(np.asarray(action)[None], self.tensor_env.spaces)
        self.state, reward, terminated, truncated = self.tensor_env.transition(self.state, actions, noise)
        return self._observation(), float(reward), bool(terminated), bool(truncated), self._info()

    def render(self) -> Any:
        """Render the current state in the chosen mode; return None without one."""
        return render_state(self.tensor_env, self.state, 0, self.render_mode)

    def _observation(self) -> Any:
        return to_numpy(tree_map(lambda part: part[0], self.tensor_env.observation(self.state)))

    def _info(self) -> dict[str, Any]:
        return {
            name: value[0].item() if value.dim() == 1 else value[0].numpy()
            for name, value in self.tensor_env.info(self.state).items()
        }


class FunctionalTorchVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, Any, np.ndarray]):
    """Gymnasium vector environment of a `TorchFuncEnv`, for `gymnasium.make_vec`, with same-step autoreset.

    In the step that ends an episode, `info["final_obs"]` and `info["final_info"]` hold its last observation and info,
    in the format of Gymnasium's own vector environments.

    Args:
        num_envs: number of rows.
        tensor_env: dotted path of the environment's class.
        render_mode: `rgb_array`, `ansi` or None.
        **kwargs: arguments of the environment.

    Raises:
        ConfigurationError: as `FunctionalTorchEnv`, or if `num_envs` is below 1.
    """

    metadata = METADATA | {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, tensor_env: str, render_mode: str | None = None, **kwargs: Any) -> None:
        if num_envs < 1:
            raise ConfigurationError(
                f"A vector of {num_envs} environments cannot be created; choose num_envs of at least 1."
            )
        self.tensor_env = make_tensor_env(tensor_env, render_mode, kwargs)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = observation_space(self.tensor_env)
        self.single_action_space = action_space(self.tensor_env.spaces)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset every environment; options are not supported."""
        super().reset(seed=seed)
        self.state = self.tensor_env.initial(draw_noise(self.np_random, self.num_envs, self.tensor_env))
        return to_numpy(self.tensor_env.observation(self.state)), self._info(np.ones(self.num_envs, bool))

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every row, and reset those whose episode ended."""
        env, noise = self.tensor_env, draw_noise(self.np_random, self.num_envs, self.tensor_env)
        tensor = action_tensor(np.asarray(actions), env.spaces)
        self.state, reward, terminated, truncated = env.transition(self.state, tensor, noise)
        ended = terminated | truncated
        final = self._final(ended.numpy())
        rows = ended.nonzero().squeeze(1)
        first = env.initial(noise[rows])
        self.state = {name: leaf.index_copy(0, rows, first[name]) for name, leaf in self.state.items()}
        obs, info = to_numpy(env.observation(self.state)), self._info(np.ones(self.num_envs, bool))
        return obs, reward.numpy(), terminated.numpy(), truncated.numpy(), info | final

    def render(self) -> tuple[Any, ...] | None:
        """Render the current states in the chosen mode, one image per row; return None without one."""
        if self.render_mode is None:
            return None
        return tuple(render_state(self.tensor_env, self.state, row, self.render_mode) for row in range(self.num_envs))

    def _final(self, ended: np.ndarray) -> dict[str, Any]:
        """Return last observations and infos before the reset; empty if no episode ended."""
        if not ended.any():
            return {}
        last = self.tensor_env.observation(self.state)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in ended.nonzero()[0]:
            final_obs[row] = to_numpy(tree_map(lambda part, row=int(row): part[row], last))
        final = {"final_obs": final_obs, "final_info": self._info(ended)}
        return final | {f"_{name}": ended.copy() for name in final}

    def _info(self, present: np.ndarray) -> dict[str, Any]:
        info = {name: value.numpy() for name, value in self.tensor_env.info(self.state).items()}
        return info | {f"_{name}": present.copy() for name in info}


def make_tensor_env(path: str, render_mode: str | None, kwargs: dict[str, Any]) -> TorchFuncEnv:
    """Create the environment of a dotted path, and check that Gymnasium can represent it."""
    module, _, name = path.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"The environment class {path!r} cannot be imported; name it as package.module.Class."
        ) from error
    check_arguments(made, kwargs, name, finite=is_own(made))
    env: TorchFuncEnv = made(**kwargs)
    if env.spaces["num_agents"] != 1:
        raise ConfigurationError(
            f"{name} has {env.spaces['num_agents']} agents; Gymnasium's interface holds environments of one."
        )
    if render_mode is not None and (render_mode not in RENDER_MODES or not hasattr(env, "render")):
        raise ConfigurationError(
            f"{name} cannot be rendered as {render_mode!r}; choose rgb_array or ansi where it can, or None."
        )
    return env


def is_own(made: Any) -> bool:
    """Return whether a class, or a `functools.partial` of one, is an environment of Leyden."""
    return str(getattr(getattr(made, "func", made), "__module__", "")).startswith("datamodules.")


def to_numpy(obs: Obs) -> Any:
    """Return copies of observations as arrays."""
    if isinstance(obs, dict):
        return {name: part.numpy().copy() for name, part in obs.items()}
    return obs.numpy().copy()


def observation_space(env: TorchFuncEnv) -> gymnasium.Space:
    """Return the Box of an observation: `obs_bounds` if defined, the range of an integer type, else unbounded.

    The parts of an observation become a Dict: choices a Discrete or MultiDiscrete, the others a Box.
    """
    if parts := env.spaces.get("obs_parts"):
        return gymnasium.spaces.Dict({name: _part_space(part) for name, part in parts.items()})
    dtype = np.dtype(env.spaces["obs_dtype"])
    everything = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = getattr(env, "obs_bounds", everything)
    return gymnasium.spaces.Box(low, high, env.spaces["obs_shape"], dtype.type)


def _part_space(part: ObsPart) -> gymnasium.Space:
    dtype, sizes = np.dtype(part["dtype"]), part.get("sizes")
    if sizes is not None:
        return gymnasium.spaces.MultiDiscrete(sizes) if part["shape"] else gymnasium.spaces.Discrete(sizes[0])
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return gymnasium.spaces.Box(low, part.get("high", high), part["shape"], dtype.type)


def action_space(spaces: SpaceSpec) -> gymnasium.Space:
    """Return Gymnasium's action space of a `SpaceSpec`."""
    sizes, start = spaces["action_sizes"], spaces["action_start"]
    match spaces["action_type"]:
        case "discrete":
            return gymnasium.spaces.Discrete(sizes[0], start=start[0])
        case "multidiscrete":
            return gymnasium.spaces.MultiDiscrete(sizes, start=start)
        case "binary":
            return gymnasium.spaces.MultiBinary(len(sizes))
        case "continuous":
            low, high = (np.asarray(spaces[bound], np.float32) for bound in ("action_low", "action_high"))
            return gymnasium.spaces.Box(low, high)
        case "hybrid":
            return HybridSpace(sizes, spaces["action_low"], spaces["action_high"])


def action_tensor(actions: np.ndarray, spaces: SpaceSpec) -> Tensor:
    """Convert actions `[B, ...]` of Gymnasium's space to the tensor that `transition` takes: discrete ones from 0."""
    if spaces["action_type"] in ("continuous", "hybrid"):
        return torch.as_tensor(actions, dtype=torch.float32)
    tensor = torch.as_tensor(actions, dtype=torch.int64)
    return (
        tensor - torch.tensor(spaces["action_start"]).view(tensor.shape[1:]) if any(spaces["action_start"]) else tensor
    )


def draw_noise(generator: np.random.Generator, rows: int, env: TorchFuncEnv) -> Tensor:
    """Draw one step's uniforms, float32 `[rows, noise_size]`."""
    return torch.from_numpy(generator.random((rows, env.noise_size), dtype=np.float32))


def render_state(env: Any, state: dict[str, Tensor], row: int, mode: str | None) -> Any:
    """Render one row as an array or a text; return None without a mode."""
    if mode is None:
        return None
    shown = env.render(state, row, mode)
    return shown.numpy() if isinstance(shown, Tensor) else shown
