"""vector_episode: play one episode of a vector environment, such as one of several agents."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import torch

from datamodules.core.protocols import Policy, VectorEnv
from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput, insert_masks, select_masks
from datamodules.rendering.episode import DEFAULT_FPS, Array, RenderedStep


@torch.no_grad()
def vector_episode(
    envs: VectorEnv, policy: Policy, *, seed: int, greedy: bool, max_steps: int, images: bool = True
) -> Iterator[RenderedStep]:
    """Play until every row's episode has ended, and yield every state; rewards are means over the rows.

    Args:
        envs: on the CPU; one environment, whose rows are its agents.   policy: on the CPU, in eval mode.
        seed: seed of the environment and of a sampling policy.
        greedy: use the mode of the policy instead of a sample.
        max_steps: the episode is cut after this number of steps.
        images: render every state; only on-device environments with a `render` can.
    """
    generator = torch.Generator().manual_seed(seed)
    with closing(envs):
        obs, masks = envs.reset(seed)
        rows = envs.num_envs * envs.spaces["num_agents"]
        state, start, reward, total = policy.initial_state(rows), torch.ones(rows, dtype=torch.bool), 0.0, 0.0
        over = torch.zeros(rows, dtype=torch.bool)
        for step in range(max_steps + 1):
            inputs = PolicyInput(
                tree_map(torch.clone, obs), insert_masks(state, masks), start, masks.get("action_mask")
            )
            image = picture(envs) if images else None
            if step == max_steps or bool(over.all()):
                yield RenderedStep(image, DEFAULT_FPS, step, reward, total, inputs, None, state, None)
                return
            noise = None if greedy else policy.noise((rows,), generator)
            output, state = policy.act(inputs, noise, greedy=greedy)
            yield RenderedStep(image, DEFAULT_FPS, step, reward, total, inputs, output, state, output.action.numpy())
            result = envs.step(output.action)
            reward = float((result.reward * (result.valid & ~over)).sum() / rows)
            total += reward
            start = result.terminated | result.truncated | ~result.valid
            obs, masks, over = result.obs, select_masks(result.info), over | start


def picture(envs: VectorEnv) -> Array | None:
    """Return an image of the first environment, uint8 `[H, W, 3]`; None unless it is on-device and has a `render`."""
    own = cast(Any, getattr(envs, "unwrapped", envs))
    if not envs.is_stateless or not hasattr(own.env, "render"):
        return None
    image: Array = own.env.render(own.state, 0, "rgb_array").numpy()
    return image
