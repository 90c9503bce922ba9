"""The Collector: the only code that steps an environment to learn from it."""

import torch
from torch import Tensor

from datamodules.joint import Joint
from datamodules.types import Actor, Rollout, State, Step, VectorEnv


class Collector:
    """Steps B environment rows with an actor for T steps at a time, into storage that is allocated once.

    The rollout it returns is a view of that storage: learn from it before collecting the next one.

    Args:
        envs: the environments, not yet reset.
        actor: decides; its weights are read at every step, never copied.
        horizon: T, steps of every row in a rollout.
        generator: source of the actor's noise, on the device of `envs`.
    """

    def __init__(self, envs: VectorEnv, actor: Actor, horizon: int, generator: torch.Generator):
        self.envs, self.actor, self.horizon, self.generator = envs, actor, horizon, generator
        self.rows = envs.num_envs * envs.spaces["agents"]
        self.joint = Joint(self._collect, envs.device)
        self._storage: dict[str, Tensor] = {}
        self._final_index = torch.full((1, self.rows), -1, device=envs.device)
        self._final_obs: Tensor | None = None
        self._static = envs.noise(0) is not None and envs.device.type != "cpu"

    def start(self, seed: int) -> None:
        """Begin every episode anew."""
        self._obs, self._masks = self.envs.reset(seed)
        self._state = self.actor.initial_state(self.rows)
        self._reset = torch.ones(self.rows, dtype=torch.bool, device=self.envs.device)
        self._return = torch.zeros(self.rows, dtype=torch.float64, device=self.envs.device)
        self._length = torch.zeros(self.rows, dtype=torch.int64, device=self.envs.device)

    @torch.no_grad()
    def collect(self) -> Rollout:
        """One rollout of `horizon` steps, with the actor as it is now."""
        rollout = self.joint()
        torch.clear_autocast_cache()
        return rollout

    def _collect(self) -> Rollout:
        before, storage = self._state, self._storage
        noise = self.actor.noise((self.horizon, self.rows), self.generator)
        env_noise = self.envs.noise(self.horizon)
        self._final_index.fill_(-1)
        self._store("obs", 0, self._obs, length=self.horizon + 1)
        for t in range(self.horizon):
            self._store("reset", t, self._reset)
            self._store_all("extras/", t, self._masks)
            decision, self._state = self.actor.act(
                storage["obs"][t], self._state, self._reset, mask=self._masks.get("action_mask"), noise=noise[t]
            )
            step = self.envs.step(decision.action, None if env_noise is None else env_noise[t])
            self._store("action", t, decision.action)
            self._store_all("extras/", t, decision.extras)
            self._store_step(t, step)
        self._obs = storage["obs"][self.horizon]
        return self._rollout(before)

    def _store(self, name: str, t: int, value: Tensor, length: int | None = None) -> None:
        if name not in self._storage:
            shape = (length or self.horizon, *value.shape)
            self._storage[name] = torch.empty(shape, dtype=value.dtype, device=value.device)
        self._storage[name][t] = value

    def _store_all(self, prefix: str, t: int, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self._store(prefix + name, t, value)

    def _store_step(self, t: int, step: Step) -> None:
        self._store("obs", t + 1, step.obs)
        for name in ("reward", "terminated", "truncated", "valid"):
            self._store(name, t, getattr(step, name))
        self._store_all("episode/", t, {key: step.info[key] for key in self.envs.episode_keys})
        self._masks = {name: value for name, value in step.info.items() if name.endswith("_mask")}
        self._reset = step.terminated | step.truncated
        if self.envs.phantoms:
            self._reset |= ~step.valid
        if step.final_obs is not None:
            self._keep_final(t, step.final_obs, step.truncated & ~step.terminated)

    def _keep_final(self, t: int, final_obs: Tensor, truncated: Tensor) -> None:
        """Keep the true last observations of truncated rows: one slot a row on the device path, else as needed."""
        if self._final_obs is None:
            self._final_obs = torch.zeros((1, *final_obs.shape), dtype=final_obs.dtype, device=final_obs.device)
        if self._static:
            keep = truncated.view(-1, *[1] * (final_obs.dim() - 1))
            torch.where(keep, final_obs, self._final_obs[0], out=self._final_obs[0])
            self._final_index[0].masked_fill_(truncated, t)
            return
        rows = truncated.nonzero()[:, 0]
        slots = (self._final_index[:, rows] >= 0).sum(0)
        if rows.numel() and int(slots.max()) == self._final_index.shape[0]:
            self._final_obs = torch.cat([self._final_obs, torch.zeros_like(self._final_obs)])
            self._final_index = torch.cat([self._final_index, torch.full_like(self._final_index, -1)])
        self._final_obs[slots, rows] = final_obs[rows]
        self._final_index[slots, rows] = t

    def _rollout(self, before: State) -> Rollout:
        storage = self._storage
        if self._final_obs is None:
            self._final_obs = torch.zeros_like(storage["obs"][:1])
        return Rollout(
            **{
                name: storage[name] for name in ("obs", "action", "reward", "terminated", "truncated", "valid", "reset")
            },
            final_obs=self._final_obs,
            final_index=self._final_index,
            state=before,
            extras={name[7:]: value for name, value in storage.items() if name.startswith("extras/")},
            episodes=self._episode_totals(),
            env_steps=int(storage["valid"].sum()) if self.envs.phantoms else self.horizon * self.rows,
        )

    def _episode_totals(self) -> dict[str, Tensor]:
        """Totals over the episodes that ended, from running sums: what ended episodes share out telescopes."""
        storage = self._storage
        ended = (storage["terminated"] | storage["truncated"]) & storage["valid"]
        reward = storage["reward"].to(torch.float64).cumsum(0)
        length = storage["valid"].cumsum(0)
        steps = torch.arange(1, self.horizon + 1, device=ended.device).unsqueeze(1)
        last = (ended * steps).amax(0)
        any_ended = last > 0
        index = (last - 1).clamp(min=0).unsqueeze(0)
        reward_last, length_last = reward.gather(0, index)[0], length.gather(0, index)[0]
        totals = {
            "count": ended.sum().to(torch.float64),
            "return": ((self._return + reward_last) * any_ended).sum(),
            "length": ((self._length + length_last) * any_ended).sum().to(torch.float64),
        }
        for key in self.envs.episode_keys:
            totals[key] = (storage["episode/" + key] * ended).sum().to(torch.float64)
        self._return = reward[-1] + torch.where(any_ended, -reward_last, self._return)
        self._length = length[-1] + torch.where(any_ended, -length_last, self._length)
        return totals

    def state_dict(self) -> dict[str, object]:
        """Everything that makes the next rollout the same as without the interruption; tensors and plain types."""
        names = ("_obs", "_masks", "_state", "_reset", "_return", "_length")
        envs = self.envs.state_dict()
        live = {name: _cloned(getattr(self, name)) for name in names} if envs else {}
        return {"generator": self.generator.get_state(), "envs": envs, "live": live}

    def load_state_dict(self, state: dict) -> bool:
        """Continue from `state_dict`, on the device of the environments.

        Returns: False where the environments could not be saved: their episodes have begun anew.
        """
        self.generator.set_state(state["generator"])
        if not state["envs"]:
            self.start(int(torch.randint(2**31, (1,), generator=self.generator, device=self.generator.device)))
            return False
        self.envs.load_state_dict(state["envs"])
        for name, value in state["live"].items():
            setattr(self, name, _cloned(value, self.envs.device))
        return True


def _cloned(value: Tensor | State, device: torch.device | None = None) -> Tensor | State:
    if isinstance(value, dict):
        return {name: tensor.detach().clone().to(device) for name, tensor in value.items()}
    return value.detach().clone().to(device)
