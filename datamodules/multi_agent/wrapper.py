"""VectorEnvWrapper: a VectorEnv around another, whose methods a subclass changes."""

from typing import Any, cast

from torch import Tensor

from datamodules.core.protocols import StatelessVectorEnv, VectorEnv
from datamodules.core.types import State

OWN = "wrapper/"
"""Prefix of the state's leaves that belong to a wrapper; followed by the wrapper's name."""


class VectorEnvWrapper:
    """VectorEnv around another one; on-device environments stay pure functions of their state.

    A wrapper's own state is part of `state`, every leaf `[num_envs, ...]`, under the prefix `wrapper/NAME/`.

    Args:
        envs: the vector environment.   name: name of the wrapper's own leaves.
    """

    def __init__(self, envs: VectorEnv, name: str):
        self.envs, self._prefix = envs, f"{OWN}{name}/"
        self.stateless_envs = cast(StatelessVectorEnv, envs) if envs.is_stateless else None
        self.spaces, self.num_envs, self.device = envs.spaces, envs.num_envs, envs.device
        self.episode_stat_keys, self.min_truncation_step = envs.episode_stat_keys, envs.min_truncation_step
        self.has_invalid_steps, self.is_stateless = envs.has_invalid_steps, envs.is_stateless
        self.agent_names: tuple[str, ...] = getattr(envs, "agent_names", ())
        self.own: State = {}

    @property
    def return_all_final_obs(self) -> bool:
        """Whether `VectorStep.final_obs` is also returned for terminated rows."""
        return self.envs.return_all_final_obs

    @return_all_final_obs.setter
    def return_all_final_obs(self, value: bool) -> None:
        self.envs.return_all_final_obs = value

    @property
    def unwrapped(self) -> VectorEnv:
        """Return the innermost vector environment."""
        return getattr(self.envs, "unwrapped", self.envs)

    @property
    def restarts(self) -> Any:
        """Return the restart counter of the environments, if they have one."""
        return getattr(self.envs, "restarts", None)

    @property
    def state(self) -> State:
        """State of all environments after the last `reset` or `step`, with the wrapper's own leaves."""
        inner = {} if self.stateless_envs is None else self.stateless_envs.state
        return inner | {self._prefix + name: leaf for name, leaf in self.own.items()}

    @state.setter
    def state(self, state: State) -> None:
        inner, self.own = self.split(state)
        if self.stateless_envs is not None:
            self.stateless_envs.state = inner

    def split(self, state: State) -> tuple[State, State]:
        """Return the leaves of the environments, and the wrapper's own leaves without their prefix."""
        size = len(self._prefix)
        own = {name[size:]: leaf for name, leaf in state.items() if name.startswith(self._prefix)}
        return {name: leaf for name, leaf in state.items() if not name.startswith(self._prefix)}, own

    def joined(self, inner: State, own: State) -> State:
        """Return one state from the environments' leaves and the wrapper's own."""
        return inner | {self._prefix + name: leaf for name, leaf in own.items()}

    def limit(self, steps: int) -> None:
        """Truncate every episode after this number of steps, from the next reset on."""
        self.envs.limit(steps)

    def noise(self, steps: int) -> Tensor | None:
        """Draw random numbers for `steps` vector steps; None if the environments draw their own."""
        return self.envs.noise(steps)

    def state_dict(self) -> dict[str, object]:
        """Return the state for an exact resume; empty if the environments cannot."""
        inner = self.envs.state_dict()
        return {"envs": inner, "own": {name: leaf.clone() for name, leaf in self.own.items()}} if inner else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.envs.load_state_dict(state["envs"])
        self.own = {name: leaf.to(self.device, copy=True) for name, leaf in state["own"].items()}

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
