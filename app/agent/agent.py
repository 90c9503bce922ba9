"""Agent: a trained policy that acts on numpy arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.agent.arrays import Array, ObsArray, action_encoder, mask_in, obs_rows
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted
from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput, State, insert_masks
from modules.base.algorithm import Algorithm

AgentState = dict[str, Array]
"""State of a recurrent or option policy, every leaf `[B, ...]`."""


class Agent:
    """A trained policy: observations of the environment in, its actions out.

    Normalisation of observations, squashing and scaling of actions are inside. The module's networks are in eval mode,
    as they are whenever no update runs.

    Args:
        module: the algorithm with its weights, such as after `trainer.fit`; it acts on the device that it is on.
        path: checkpoint that it was loaded from, if any.
        seed: seed of sampled actions; None draws one.
        max_batch_size: most rows of one call of the policy, which bounds its memory; larger batches of observations are
            split. None: no limit.

    Raises:
        ConfigurationError: if `max_batch_size` is below 1.

    Attributes:
        module: the algorithm, a LightningModule.   spaces: observation and action space.   path: the checkpoint.
        env_steps: environment steps that it was trained for.
    """

    def __init__(
        self,
        module: Algorithm,
        path: Path | None = None,
        seed: int | None = None,
        max_batch_size: int | None = None,
    ):
        if max_batch_size is not None and max_batch_size < 1:
            raise ConfigurationError(
                f"max_batch_size is {max_batch_size}; it must be at least 1, or None for no limit."
            )
        self.module, self.path, self.max_batch_size = module, path, max_batch_size
        self.spaces, self.env_steps = module.spaces, module.env_steps
        self.generator = torch.Generator(device=module.device)
        self.seed(seed)
        self._encode = action_encoder(self.spaces)

    def __repr__(self) -> str:
        where = "" if self.path is None else f" of {self.path}"
        limit = f", at most {counted(self.max_batch_size, 'row')} a call" if self.max_batch_size else ""
        return f"Agent({type(self.module).__name__}{where}, {self.env_steps:,} env steps{limit})"

    def seed(self, seed: int | None = None) -> None:
        """Seed the actions that are sampled; None draws a seed."""
        self.generator.seed() if seed is None else self.generator.manual_seed(seed)

    @torch.no_grad()
    def predict(
        self,
        obs: ObsArray,
        state: AgentState | None = None,
        episode_start: Array | bool | None = None,
        deterministic: bool = True,
        action_mask: Array | None = None,
        option_mask: Array | None = None,
    ) -> tuple[Array, AgentState | None]:
        """Return actions and the next state, as `predict` of Stable-Baselines3 does.

        Args:
            obs: one observation `[*obs_shape]`, or a batch `[B, *obs_shape]`; of an environment with several parts, a
                mapping of these.
            state: state returned by the previous call; None begins an episode in every row.
            episode_start: rows, bool `[B]`, whose episode begins; by default none if a state is given.
            deterministic: take the policy's mode; False samples.
            action_mask: allowed actions `[B, n]`, as in the environment's info; None takes those that the observation
                holds as a part, else allows all.
            option_mask: options that may start `[B, K]`, as in the environment's info; None allows all.

        Returns:
            the action, in the space and units of the environment, `[B, ...]` or of one row as the observation is; and
            the state of the rows, None if the policy has none.

        Raises:
            ConfigurationError: for observations, masks or states of other shapes.
        """
        rows, single = obs_rows(obs, self.spaces)
        action_mask = mask_in(obs) if action_mask is None else action_mask
        inputs = self.policy_input(rows, state, episode_start, {"action_mask": action_mask, "option_mask": option_mask})
        noise = None if deterministic else self.module.noise((len(inputs.episode_start),), self.generator)
        chosen, following = self._act(inputs, noise, deterministic)
        action = self.encode(chosen)
        return action[0] if single else action, {name: leaf.cpu().numpy() for name, leaf in following.items()} or None

    def _act(self, inputs: PolicyInput, noise: Tensor | None, greedy: bool) -> tuple[Tensor, State]:
        """Return the policy's actions and next states, from calls of at most `max_batch_size` rows."""
        rows, actions, states = len(inputs.episode_start), [], []
        size = self.max_batch_size or rows
        if rows <= size:
            output, state = self.module.act(inputs, noise, greedy=greedy)
            return output.action, state
        for begin in range(0, rows, size):
            part = tree_map(lambda leaf, begin=begin: leaf[begin : begin + size], inputs)
            draw = None if noise is None else noise[begin : begin + size]
            output, state = self.module.act(part, draw, greedy=greedy)
            actions.append(output.action)
            states.append(state)
        return torch.cat(actions), {name: torch.cat([each[name] for each in states]) for name in states[0]}

    def policy_input(
        self, rows: Any, state: AgentState | None, episode_start: Array | bool | None, masks: Mapping[str, Array | None]
    ) -> PolicyInput:
        """Return the policy's input from observations `[B, *obs_shape]` as tensors."""
        batch = len(next(iter(rows.values())) if isinstance(rows, dict) else rows)
        before = self.module.initial_state(batch)
        if state is not None:
            before = {name: self._leaf(name, leaf, state) for name, leaf in before.items()}
        given = {name: _mask(name, mask, batch) for name, mask in masks.items() if mask is not None}
        starts = state is None if episode_start is None else episode_start
        start = torch.from_numpy(np.broadcast_to(np.asarray(starts, dtype=np.bool_), batch).copy())
        inputs = PolicyInput(rows, insert_masks(before, given), start, given.get("action_mask"))
        return tree_map(lambda leaf: leaf.to(self.module.device), inputs)

    def encode(self, action: Tensor) -> Array:
        """Return the environment's actions `[B, ...]` from the policy's."""
        return self._encode(action.cpu().numpy())

    def _leaf(self, name: str, initial: Tensor, state: AgentState) -> Tensor:
        if name not in state or state[name].shape != tuple(initial.shape):
            found = "missing" if name not in state else f"of shape {state[name].shape}"
            raise ConfigurationError(
                f"The state's {name} is {found}, not of shape {tuple(initial.shape)}: pass the state that the previous"
                " call returned for the same rows, or None when an episode begins."
            )
        return torch.from_numpy(np.array(state[name])).to(initial.dtype)


def _mask(name: str, mask: Array, batch: int) -> Tensor:
    """Return a mask as bool `[B, n]`; one of a single row may lack the batch's dimension."""
    rows = np.asarray(mask, dtype=np.bool_)
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != batch:
        raise ConfigurationError(f"{name} has the shape {np.shape(mask)}; give one row for each of {batch}.")
    return torch.from_numpy(rows.copy())
