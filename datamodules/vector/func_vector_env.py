"""An on-device environment (TensorEnv) as Leyden's VectorEnv: pure functions of a state, and who holds the state."""

import torch
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.core.protocols import TensorEnv
from datamodules.core.types import Spaces, State, Step, masks_of
from datamodules.env_interface.spaces import without_constants

ELAPSED = "elapsed_steps"
"""Leaf of a state that counts the steps of an episode, where there is a limit."""


class DeviceEnv:
    """Holds the states of B rows of a TensorEnv, their randomness, and resets rows in the step that ends them.

    Args:
        env: the environment's functions.
        num_envs: environments; rows are `num_envs` times agents.
        device: where states live and functions run.
        seed: of the generator that `noise` draws from.

    Raises: UsageError for continuous actions that cannot be rescaled (see `datamodules.env_interface.spaces.free_parts`).
    """

    pure = True
    every_final = False
    phantoms = False

    def __init__(self, env: TensorEnv, num_envs: int, *, device: torch.device, seed: int = 0):
        self.env, self.num_envs, self.device = env, num_envs, device
        self.spaces: Spaces = without_constants(env.spaces, type(env).__name__)
        self.episode_keys = env.episode_keys
        self.shortest_truncation = env.shortest_truncation
        self.rows = num_envs * env.spaces["agents"]
        self.state: State = {}
        self.max_steps: int | None = None
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self._all_valid = torch.ones(self.rows, dtype=torch.bool, device=device)
        self._low = torch.tensor(env.spaces["action_low"], device=device)
        self._high = torch.tensor(env.spaces["action_high"], device=device)
        self._free = (self._low < self._high).nonzero()[:, 0]

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Start every row anew, from a reseeded generator if a seed is given.

        Returns: observations `[B, *obs]` and masks.
        """
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = self._first(self.noise(1)[0])
        return self.env.observation(self.state), masks_of(self.env.info(self.state))

    def limit(self, steps: int) -> None:
        """Truncate every episode after so many steps, from the next reset on; the state then counts them."""
        self.max_steps = steps

    def noise(self, steps: int) -> Tensor:
        """Uniforms in [0, 1) for `steps` vector steps, `[steps, B, noise_size]`."""
        shape = (steps, self.rows, self.env.noise_size)
        return torch.rand(shape, generator=self.generator, device=self.device)

    def step(self, action: Tensor, noise: Tensor | None = None) -> Step:
        """Advance every row by one step.

        Args:
            action: `[B]` or `[B, parts]`, 0-based; continuous actions are clipped to the bounds.
            noise: one step of what `noise` drew; drawn here when None.
        """
        self.state, step, last = self.advance(self.state, action, self.noise(1)[0] if noise is None else noise)
        lost = step.truncated | step.terminated if self.every_final else step.truncated
        return step._replace(final_obs=self.env.observation(last)) if lost.any() else step

    def advance(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Step, State]:
        """The step as a pure function of the state: what compiled and captured loops call.

        Eagerly on a CPU, work that no row needs is left out; elsewhere shapes and work are static. The results agree.

        Returns: the state after resets, the step (its `final_obs` is None), and the state before resets.
        """
        if self.spaces["action_kind"] == "continuous":
            action = self._filled(action).clamp(self._low, self._high)
        last, reward, terminated, truncated = self.env.transition(state, action, noise)
        if self.max_steps is not None:
            last = {**last, ELAPSED: state[ELAPSED] + 1}
            truncated = truncated | ((last[ELAPSED] >= self.max_steps) & ~terminated)
        ended = terminated | truncated
        info, merged = self.env.info(last), last
        static = self.device.type != "cpu" or torch.compiler.is_compiling()
        if static or ended.any():
            merged = self._merged(ended, noise, last, static)
            info = {**info, **masks_of(self.env.info(merged))}
        obs = self.env.observation(merged)
        return merged, Step(obs, reward, terminated, truncated, None, self._all_valid, info), last

    def _filled(self, action: Tensor) -> Tensor:
        """Actions `[B, parts]` of the environment: the policy's, and its constant parts."""
        if len(self._free) == len(self._low):
            return action
        return self._low.repeat(len(action), 1).index_copy(1, self._free, action)

    def observation(self, state: State) -> Tensor:
        """Observations `[B, *obs]` of states."""
        return self.env.observation(state)

    def info(self, state: State) -> dict[str, Tensor]:
        """What states report: `episode_keys` and masks."""
        return self.env.info(state)

    def _first(self, noise: Tensor) -> State:
        """First states of episodes."""
        state = self.env.initial(noise)
        return state if self.max_steps is None else {**state, ELAPSED: torch.zeros_like(noise[:, 0], dtype=torch.int64)}

    def _merged(self, ended: Tensor, noise: Tensor, last: State, static: bool) -> State:
        """First states of new episodes where one ended, the last states elsewhere."""
        if static:
            first = self._first(noise)
            return {
                key: torch.where(ended.view(-1, *[1] * (leaf.dim() - 1)), first[key], leaf)
                for key, leaf in last.items()
            }
        rows = ended.nonzero()[:, 0]
        first = self._first(noise[rows])
        return {key: leaf.index_copy(0, rows, first[key]) for key, leaf in last.items()}

    def state_dict(self) -> dict[str, object]:
        """Copies of the state's leaves, and the generator's: the run continues exactly."""
        state = {key: leaf.clone() for key, leaf in self.state.items()}
        return {"state": state, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:
        """Continue from `state_dict`, on this device.

        Raises: UsageError if it was saved with another number of rows or on another kind of device.
        """
        leaves = {key: leaf.to(self.device, copy=True) for key, leaf in state["state"].items()}
        rows = {leaf.shape[0] for leaf in leaves.values()}
        if rows and rows != {self.rows}:
            raise UsageError(f"The saved environments have {max(rows)} rows and these {self.rows}: keep data.num_envs.")
        shapes = {key: leaf.shape[1:] for key, leaf in self.env.initial(self.noise(1)[0]).items()}
        if shapes != {key: leaf.shape[1:] for key, leaf in leaves.items()}:
            raise UsageError("The saved environments are of another shape than these: keep data.env and env_kwargs.")
        if state["generator"].shape != self.generator.get_state().shape:
            raise UsageError(
                f"The environments were saved on another kind of device than {self.device.type}: resume there."
            )
        self.state = leaves
        self.generator.set_state(state["generator"].cpu())

    def close(self) -> None:
        """Nothing to release."""
