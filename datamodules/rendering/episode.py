"""rendered_episode: play one evaluation episode in a single environment, with an image of every step."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import Policy
from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State, insert_masks
from datamodules.env_interface.spaces import make_action_encoder, make_obs_decoder, to_space_spec
from datamodules.rendering.offscreen import render_offscreen
from datamodules.vector.make_env import make_env
from datamodules.wrappers.apply_wrappers import EnvWrapper

Array = np.ndarray[Any, Any]

DEFAULT_FPS = 30


class RenderedStep(NamedTuple):
    """One state of an episode with the policy's decision in it; tensors have one row.

    image: uint8 `[H, W, 3]`; None if the environment cannot be rendered.   fps: frames per second in real time.
    step: steps taken so far.   reward: of the last of them, 0 at the start.   episode_return: sum of the rewards.
    inputs, output, state: of the policy in this state; `output` is None in the last one, after the episode.
    action: in the environment's units; None in the last state.
    """

    image: Array | None
    fps: int
    step: int
    reward: float
    episode_return: float
    inputs: PolicyInput
    output: PolicyOutput | None
    state: State
    action: Any


@torch.no_grad()
def rendered_episode(
    env: str,
    env_kwargs: dict[str, Any],
    policy: Policy,
    *,
    seed: int,
    greedy: bool,
    max_steps: int,
    wrappers: Sequence[EnvWrapper] = (),
    images: bool = True,
) -> Iterator[RenderedStep]:
    """Play one episode on the CPU and yield every state, the last one included.

    Args:
        env, env_kwargs, wrappers: environment as in `datamodules.vector.make_env`.
        policy: on the CPU, in eval mode.
        seed: seed of the environment and of a sampling policy.
        greedy: use the mode of the policy instead of a sample.
        max_steps: the episode is cut after this number of steps.
        images: render every state; False plays without.

    Raises: ConfigurationError for an environment that cannot be created as one Gymnasium environment, or rendered.
    """
    generator = torch.Generator().manual_seed(seed)
    if images:
        render_offscreen()
    with closing(make_env(env, env_kwargs, wrappers, images)) as one:
        decode, encode = make_obs_decoder(one.observation_space), make_action_encoder(one.action_space)
        spaces = to_space_spec(one.observation_space, one.action_space, name=env)
        obs, info = one.reset(seed=seed)
        state, start, reward, total = policy.initial_state(1), True, 0.0, 0.0
        terminated, truncated, fps = False, False, int(one.metadata.get("render_fps") or DEFAULT_FPS)
        for step in range(max_steps + 1):
            inputs = _inputs(_rows(decode(obs), spaces), info, state, start)
            if step == max_steps or terminated or truncated:
                yield RenderedStep(image_of(one, env), fps, step, reward, total, inputs, None, state, None)
                return
            output, state = policy.act(inputs, None if greedy else policy.noise((1,), generator), greedy=greedy)
            action = encode(output.action.numpy())[0]
            yield RenderedStep(image_of(one, env), fps, step, reward, total, inputs, output, state, action)
            obs, paid, terminated, truncated, info = one.step(action)
            start, reward = False, float(paid)
            total += reward


def _inputs(obs: Any, info: dict[str, Any], state: State, start: bool) -> PolicyInput:
    """Return the policy's input of one row, with the masks of the environment's info."""
    masks = {
        name: torch.from_numpy(np.asarray(mask, dtype=np.bool_)[None])
        for name, mask in info.items()
        if name.endswith("_mask") and not name.startswith("_")
    }
    return PolicyInput(obs, insert_masks(state, masks), torch.tensor([start]), masks.get("action_mask"))


def _rows(obs: Any, spaces: SpaceSpec) -> Any:
    """Return a decoded observation as a tensor with one row, or its parts by name."""
    if parts := spaces.get("obs_parts"):
        return {name: _row(obs[name], part["dtype"]) for name, part in parts.items()}
    return _row(obs, spaces["obs_dtype"])


def _row(array: Any, dtype: str) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=dtype)[None])


def image_of(env: gym.Env[Any, Any], name: str) -> Array | None:
    """Return the image of an environment's state, uint8 `[H, W, 3]`; None if it has none.

    Raises: ConfigurationError with the environment's `name` if it cannot be rendered.
    """
    if env.render_mode != "rgb_array":
        return None
    try:
        image: Any = env.render()
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigurationError(
            f"{name} cannot be rendered ({said.rstrip('.')}): install what its `render` needs; without a screen MuJoCo"
            " needs MUJOCO_GL=egl or MUJOCO_GL=osmesa."
        ) from error
    return None if image is None else np.asarray(image, dtype=np.uint8)
