"""Every on-device environment as a Gymnasium environment, so that other tools can use it and `check_env` can judge it.

An environment that can show itself has `render(state, row, mode)` for the modes `rgb_array` and `ansi`; one whose
observations are bounded floats says so in `obs_bounds`, (low, high). Both are optional.
"""

import importlib
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.core.protocols import TensorEnv
from datamodules.core.types import Spaces

RENDER_MODES = ("rgb_array", "ansi")
METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}


class SingleEnv(gymnasium.Env[np.ndarray, Any]):
    """One row of a `TensorEnv`; its randomness comes from Gymnasium's `np_random`, so a seed repeats the episodes.

    Args:
        tensor_env: dotted path of the environment's class, such as `datamodules.envs.snake.env.Snake`.
        render_mode: `rgb_array`, `ansi` or None.
        **kwargs: the environment's own arguments.

    Raises:
        UsageError: if the path leads nowhere, the environment has several agents or cannot show itself.
    """

    metadata = METADATA

    def __init__(self, tensor_env: str, render_mode: str | None = None, **kwargs: Any) -> None:
        self.tensor_env = make_tensor_env(tensor_env, render_mode, kwargs)
        self.render_mode = render_mode
        self.observation_space = observation_space(self.tensor_env)
        self.action_space = action_space(self.tensor_env.spaces)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; takes no options."""
        super().reset(seed=seed)
        self.state = self.tensor_env.initial(uniforms(self.np_random, 1, self.tensor_env))
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        noise = uniforms(self.np_random, 1, self.tensor_env)
        actions = action_tensor(np.asarray(action)[None], self.tensor_env.spaces)
        self.state, reward, terminated, truncated = self.tensor_env.transition(self.state, actions, noise)
        return self._observation(), float(reward), bool(terminated), bool(truncated), self._info()

    def render(self) -> Any:
        """The current state in the chosen mode; None without one."""
        return picture(self.tensor_env, self.state, 0, self.render_mode)

    def _observation(self) -> np.ndarray:
        return self.tensor_env.observation(self.state)[0].numpy().copy()

    def _info(self) -> dict[str, Any]:
        return {
            name: value[0].item() if value.dim() == 1 else value[0].numpy()
            for name, value in self.tensor_env.info(self.state).items()
        }


class BatchEnv(gymnasium.vector.VectorEnv[np.ndarray, Any, np.ndarray]):
    """Many rows of a `TensorEnv` for `gymnasium.make_vec`; a row whose episode ends starts the next in the same step.

    In the step that ends an episode, `info["final_obs"]` and `info["final_info"]` hold what it ended with, in the form
    of Gymnasium's own vector environments.

    Args:
        num_envs: rows.
        tensor_env: dotted path of the environment's class.
        render_mode: `rgb_array`, `ansi` or None.
        **kwargs: the environment's own arguments.

    Raises:
        UsageError: as `SingleEnv`, or if `num_envs` is below 1.
    """

    metadata = METADATA | {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, tensor_env: str, render_mode: str | None = None, **kwargs: Any) -> None:
        if num_envs < 1:
            raise UsageError(f"A vector of {num_envs} environments cannot be made; choose num_envs of at least 1.")
        self.tensor_env = make_tensor_env(tensor_env, render_mode, kwargs)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = observation_space(self.tensor_env)
        self.single_action_space = action_space(self.tensor_env.spaces)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start every episode anew; takes no options."""
        super().reset(seed=seed)
        self.state = self.tensor_env.initial(uniforms(self.np_random, self.num_envs, self.tensor_env))
        return self.tensor_env.observation(self.state).numpy().copy(), self._info(np.ones(self.num_envs, bool))

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance every row by one step, and start the next episode of those that ended."""
        env, noise = self.tensor_env, uniforms(self.np_random, self.num_envs, self.tensor_env)
        tensor = action_tensor(np.asarray(actions), env.spaces)
        self.state, reward, terminated, truncated = env.transition(self.state, tensor, noise)
        ended = terminated | truncated
        final = self._final(ended.numpy())
        rows = ended.nonzero().squeeze(1)
        first = env.initial(noise[rows])
        self.state = {name: leaf.index_copy(0, rows, first[name]) for name, leaf in self.state.items()}
        obs, info = env.observation(self.state).numpy().copy(), self._info(np.ones(self.num_envs, bool))
        return obs, reward.numpy(), terminated.numpy(), truncated.numpy(), info | final

    def render(self) -> tuple[Any, ...] | None:
        """The current states in the chosen mode, one picture a row; None without one."""
        if self.render_mode is None:
            return None
        return tuple(picture(self.tensor_env, self.state, row, self.render_mode) for row in range(self.num_envs))

    def _final(self, ended: np.ndarray) -> dict[str, Any]:
        """What episodes ended with, before the reset; nothing where none ended."""
        if not ended.any():
            return {}
        last = self.tensor_env.observation(self.state).numpy()
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in ended.nonzero()[0]:
            final_obs[row] = last[row].copy()
        final = {"final_obs": final_obs, "final_info": self._info(ended)}
        return final | {f"_{name}": ended.copy() for name in final}

    def _info(self, present: np.ndarray) -> dict[str, Any]:
        info = {name: value.numpy() for name, value in self.tensor_env.info(self.state).items()}
        return info | {f"_{name}": present.copy() for name in info}


def make_tensor_env(path: str, render_mode: str | None, kwargs: dict[str, Any]) -> TensorEnv:
    """The environment that a dotted path names, checked to be one that Gymnasium can hold."""
    module, _, name = path.rpartition(".")
    try:
        env: TensorEnv = getattr(importlib.import_module(module), name)(**kwargs)
    except (ImportError, AttributeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"The environment class {path!r} cannot be imported; name it as package.module.Class."
        ) from error
    if env.spaces["agents"] != 1:
        raise UsageError(f"{name} has {env.spaces['agents']} agents; Gymnasium's interface holds environments of one.")
    if render_mode is not None and (render_mode not in RENDER_MODES or not hasattr(env, "render")):
        raise UsageError(
            f"{name} cannot be rendered as {render_mode!r}; choose rgb_array or ansi where it can, or None."
        )
    return env


def observation_space(env: TensorEnv) -> gymnasium.spaces.Box:
    """Box of one observation: `obs_bounds` where the environment names them, all of an integer type, else unbounded."""
    dtype = np.dtype(env.spaces["obs_dtype"])
    everything = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = getattr(env, "obs_bounds", everything)
    return gymnasium.spaces.Box(low, high, env.spaces["obs_shape"], dtype.type)


def action_space(spaces: Spaces) -> gymnasium.Space:
    """Gymnasium's space for what `Spaces` says of actions."""
    sizes, start = spaces["action_sizes"], spaces["action_start"]
    match spaces["action_kind"]:
        case "discrete":
            return gymnasium.spaces.Discrete(sizes[0], start=start[0])
        case "multidiscrete":
            return gymnasium.spaces.MultiDiscrete(sizes, start=start)
        case "binary":
            return gymnasium.spaces.MultiBinary(len(sizes))
        case "continuous":
            low, high = (np.asarray(spaces[bound], np.float32) for bound in ("action_low", "action_high"))
            return gymnasium.spaces.Box(low, high)


def action_tensor(actions: np.ndarray, spaces: Spaces) -> Tensor:
    """Actions `[B, ...]` of Gymnasium's space as the tensor that `transition` takes: discrete ones count from 0."""
    if spaces["action_kind"] == "continuous":
        return torch.as_tensor(actions, dtype=torch.float32)
    tensor = torch.as_tensor(actions, dtype=torch.int64)
    return (
        tensor - torch.tensor(spaces["action_start"]).view(tensor.shape[1:]) if any(spaces["action_start"]) else tensor
    )


def uniforms(generator: np.random.Generator, rows: int, env: TensorEnv) -> Tensor:
    """One step's uniforms, float32 `[rows, noise_size]`."""
    return torch.from_numpy(generator.random((rows, env.noise_size), dtype=np.float32))


def picture(env: Any, state: dict[str, Tensor], row: int, mode: str | None) -> Any:
    """One row as an array or a text; None without a mode."""
    if mode is None:
        return None
    shown = env.render(state, row, mode)
    return shown.numpy() if isinstance(shown, Tensor) else shown
