"""The Collector: the only code that steps an environment to learn from it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from datamodules.collect.finite_check import FiniteCheck
from datamodules.collect.policy_runner import Acting
from datamodules.collect.rollout_buffer import Live, Row, column_of, of, under
from datamodules.core.phase import Joint
from datamodules.core.protocols import Actor, PureVectorEnv, VectorEnv
from datamodules.core.pytree import mapped
from datamodules.core.seeding import restore_generator
from datamodules.core.types import Decision, Rollout, Scalars, State, Step, informed, masks_of
from datamodules.env_interface.env_errors import OWN_CODE, exits_refused

TOGETHER = 2
"""Steps that are compiled as one on a CPU, where calling them costs as much as a step; on a GPU a capture does that."""


class Collector:
    """Steps B environment rows with an actor for T steps at a time, into storage that is allocated once.

    The rollout it returns is a view of that storage: learn from it before collecting the next one. Where the
    environment is made of tensors, a step is a pure function of `Live` and noise, and a rollout a sequence of them, so
    that a few can be compiled, and the whole captured.

    Args:
        envs: the environments, not yet reset.
        actor: decides; its weights are read at every step, and never copied here.
        horizon: T, steps of every row in a rollout.
        generator: source of the actor's noise, on the device of `envs`.
        name: the environment, for messages.

    Attributes:
        joint: collects a rollout.
        acting: decide in it, each for a part of the rows; their `joint` is how.
    """

    live: Live
    acting: Sequence[Any]

    def __init__(self, envs: VectorEnv, actor: Actor, horizon: int, generator: torch.Generator, name: str):
        self.envs, self.actor, self.horizon, self.generator = envs, actor, horizon, generator
        self.pure = cast(PureVectorEnv, envs) if envs.pure else None
        self.rows = envs.num_envs * envs.spaces["agents"]
        parts = [(self, "proceed")] if self.pure and getattr(actor, "compilable", True) else []
        self.together = TOGETHER if envs.device.type == "cpu" and horizon % TOGETHER == 0 else 1
        self.joint = Joint(self.roll, envs.device, name="collect", parts=parts, capturable=envs.pure)
        self.acting = [Acting(actor, envs.device)]
        self.acting_apart = self.pure is None and envs.device.type != "cpu"
        self.storage: dict[str, Tensor] = {}
        self.steps = torch.arange(horizon, device=envs.device).unbind()
        self._counts = torch.arange(1, horizon + 1, device=envs.device).unsqueeze(1)
        self._written: list[Row] = []
        self._slots: State = {}
        self._final_obs: Tensor | None = None
        self._final_index = torch.full((1, self.rows), -1, device=envs.device)
        self.finite = FiniteCheck(name, envs.spaces["agents"])

    def start(self, seed: int) -> None:
        """Begin every episode anew."""
        obs, masks = self.envs.reset(seed)
        reset = torch.ones(self.rows, dtype=torch.bool, device=self.envs.device)
        return_ = torch.zeros(self.rows, dtype=torch.float64, device=self.envs.device)
        actor, state = self.actor.initial_state(self.rows), self.pure.state if self.pure else {}
        self.live = Live(obs, masks, actor, state, reset, return_, return_.to(torch.int64))

    @torch.no_grad()
    def collect(self) -> Rollout:
        """One rollout of `horizon` steps, with the actor as it is now.

        Raises: NonFiniteError for NaN and infinities from the environment; on a GPU, where only this waits for the
            device, in the next call.
        """
        self.finite.require()
        noise = self.actor.noise((self.horizon, self.rows), self.generator)
        env_noise = self.envs.noise(self.horizon)
        if not self.storage:
            self._allocate(noise)
        with exits_refused(OWN_CODE):
            self.live, episodes = self.joint(self.live, noise, env_noise)
        if self.pure:
            self.pure.state = self.live.envs
        torch.clear_autocast_cache()
        rollout = self._rollout(episodes)
        self.finite.note(rollout, finals=self._final_obs is not None)
        return rollout

    def roll(self, live: Live, noise: Tensor, env_noise: Tensor | None) -> tuple[Live, Tensor]:
        """T steps into storage: what is live afterwards, and the totals of the episodes that ended."""
        self.begin(live)
        env_draws = [live.reset] * self.horizon if env_noise is None else env_noise.unbind()
        steps = [*zip(noise.unbind(), env_draws, self.steps, self._written, strict=True)]
        for start in range(0, self.horizon, self.together):
            live = self.proceed(live, steps[start : start + self.together], self._slots)
        if self.pure and self._final_obs is not None:
            self._final_obs[0] = self.pure.observation(self._slots)
        return self.finish(live)

    def begin(self, live: Live) -> None:
        """Write what a rollout starts from."""
        self._final_index.fill_(-1)
        self.storage["obs"][0] = live.obs
        self.storage["reset"][0] = live.reset
        for name, leaf in live.actor.items():
            self.storage["state/" + name].copy_(leaf)

    def proceed(self, live: Live, steps: Sequence[tuple[Tensor, Tensor, Tensor, Row]], slots: State) -> Live:
        """Some steps in a row: what is compiled as one."""
        for step in steps:
            live = self.advance(live, *step, slots)
        return live

    def advance(self, live: Live, noise: Tensor, env_noise: Tensor, t: Tensor, row: Row, slots: State) -> Live:
        """One step, written into `row`; truncated rows leave their last state in `slots`."""
        ask = self.acting[0] if self.acting_apart else self.actor.act
        decision, actor = self.decide(live, noise, row, ask)
        if self.pure:
            envs, step, last = self.pure.advance(live.envs, decision.action, env_noise)
            self._keep_state(t, step, last, slots)
        else:
            assert row.step is not None
            envs, step = live.envs, row.step(decision.action)
            self.keep_obs(t, step)
        masks, reset = self.record(step, row)
        obs = step.obs if self.pure else row.obs
        return Live(obs, masks, actor, envs, reset, live.return_, live.length)

    def decide(
        self, live: Live, noise: Tensor, row: Row, ask: Callable[..., tuple[Decision, State]]
    ) -> tuple[Decision, State]:
        """Ask the actor, and write what it was allowed and what it chose."""
        state = informed(live.actor, live.masks)
        decision, actor = ask(live.obs, state, live.reset, mask=live.masks.get("action_mask"), noise=noise)
        row.action.copy_(decision.action)
        for name, value in (decision.extras | live.masks).items():
            row.extras[name].copy_(value)
        return decision, actor

    def record(self, step: Step, row: Row) -> tuple[State, Tensor]:
        """Write what the environments answered: the masks of the next observation, and where it is a first one."""
        if row.begins is not None:
            return masks_of(step.info), row.begins
        row.obs.copy_(step.obs)
        row.reward.copy_(step.reward)
        row.terminated.copy_(step.terminated)
        row.truncated.copy_(step.truncated)
        if self.envs.phantoms:
            row.valid.copy_(step.valid)
        for name, column in row.episode.items():
            column.copy_(step.info[name])
        reset = step.terminated | step.truncated
        return masks_of(step.info), reset | ~step.valid if self.envs.phantoms else reset

    def _keep_state(self, t: Tensor, step: Step, last: State, slots: State) -> None:
        """One slot a row: the horizon is at most the shortest truncation."""
        truncated = step.truncated & ~step.terminated
        eager = self.envs.device.type == "cpu" and not torch.compiler.is_compiling()
        if eager and not truncated.any():
            return
        for name, leaf in last.items():
            keep = truncated.view(-1, *[1] * (leaf.dim() - 1))
            slots[name].copy_(torch.where(keep, leaf, slots[name]))
        self._final_index[0].copy_(torch.where(truncated, t, self._final_index[0]))

    def keep_obs(self, t: Tensor, step: Step, first_row: int = 0) -> None:
        """As many slots a row as its truncations need; `step` may be of the rows from `first_row` on."""
        if step.final_obs is None:
            return
        found = (step.truncated & ~step.terminated).nonzero()[:, 0]
        self.keep_last(t, found, step.final_obs, first_row)

    def keep_last(self, t: Tensor, found: Tensor, final_obs: Tensor, first_row: int = 0) -> None:
        """Keep the true last observations of step t, of the rows that `found` counts from `first_row` on."""
        rows = found + first_row
        slots = (self._final_index[:, rows] >= 0).sum(0)
        if self._final_obs is None:
            self._final_obs = torch.zeros_like(self.storage["obs"][:1])
        if rows.numel() and int(slots.max()) == self._final_index.shape[0]:
            self._final_obs = torch.cat([self._final_obs, torch.zeros_like(self._final_obs)])
            self._final_index = torch.cat([self._final_index, torch.full_like(self._final_index, -1)])
        self._final_obs[slots, rows] = final_obs[found]
        self._final_index[slots, rows] = t

    def _allocate(self, noise: Tensor) -> None:
        """Storage for every column, in the shapes and dtypes that one decision and one state show."""
        live, device = self.live, self.envs.device
        state, mask = informed(live.actor, live.masks), live.masks.get("action_mask")
        decision, _ = self.actor.act(live.obs, state, live.reset, mask=mask, noise=noise[0])
        columns = {"reset": live.reset, "action": decision.action, "reward": torch.zeros(self.rows, device=device)}
        columns |= dict.fromkeys(("terminated", "truncated", "valid"), live.reset)
        columns |= under("extras/", decision.extras | live.masks)
        if self.pure:
            info = self.pure.info(live.envs)
            columns |= under("episode/", {key: info[key] for key in self.envs.episode_keys})
            self._slots = {name: leaf.clone() for name, leaf in live.envs.items()}
            self._final_obs = torch.zeros_like(live.obs).unsqueeze(0)
        self.storage = {name: column_of(self.horizon, value) for name, value in columns.items()}
        self.storage |= {"state/" + name: torch.empty_like(leaf) for name, leaf in live.actor.items()}
        self.storage["obs"] = column_of(self.horizon + 1, live.obs)
        self.storage["valid"].fill_(True)
        self._written = [self._cut_row(t) for t in range(self.horizon)]

    def _cut_row(self, t: int) -> Row:
        """Views of step t in every column: the observation that the step leads to comes one place later."""
        answer: dict[str, Any] = {
            name: self.storage[name][t] for name in ("reward", "terminated", "truncated", "valid")
        }
        answer["obs"] = self.storage["obs"][t + 1]
        extras, episode = (
            {name: column[t] for name, column in of(group, self.storage).items()} for group in ("extras/", "episode/")
        )
        envs: Any = self.envs
        row = Row(action=self.storage["action"][t], **answer, extras=extras, episode=episode, step=envs.step)
        if envs.device.type != "cpu" or not hasattr(envs, "place"):
            return row
        place = envs.place(**answer)
        return row._replace(step=partial(envs.step, place=place), begins=place.begins)

    def _rollout(self, episodes: Tensor) -> Rollout:
        storage = self.storage
        plain = ("obs", "action", "reward", "terminated", "truncated", "valid", "reset")
        return Rollout(
            **{name: storage[name] for name in plain},
            final_obs=torch.zeros_like(storage["obs"][:1]) if self._final_obs is None else self._final_obs,
            final_index=self._final_index,
            state=of("state/", storage),
            extras=of("extras/", storage),
            episodes=Scalars(("count", "return", "length", *self.envs.episode_keys), episodes),
            phantoms=self.envs.phantoms,
            env_steps=int(storage["valid"].sum()) if self.envs.phantoms else self.horizon * self.rows,
        )

    def finish(self, live: Live) -> tuple[Live, Tensor]:
        """Write the resets; totals over the episodes that ended, from running sums: what they share out telescopes.

        On a CPU, where no episode ended there is nothing to share out; elsewhere it is always done. The results agree.
        """
        storage = self.storage
        over, valid = storage["terminated"] | storage["truncated"], storage["valid"]
        torch.logical_or(over[:-1], ~valid[:-1], out=storage["reset"][1:])
        ended = over & valid
        if self.envs.phantoms and (broken := ~valid & ~storage["reset"]).any():
            return self._finish_broken(live, ended, broken)
        reward, length = storage["reward"].cumsum(0, dtype=torch.float64), valid.cumsum(0)
        if self.envs.device.type == "cpu" and not ended.any():
            running = live._replace(return_=live.return_ + reward[-1], length=live.length + length[-1])
            return running, live.return_.new_zeros(3 + len(self.envs.episode_keys))
        last = (ended * self._counts).amax(0)
        index = (last - 1).clamp(min=0).unsqueeze(0)
        reward_last, length_last = reward.gather(0, index)[0], length.gather(0, index)[0]
        totals = [
            ended.sum(),
            ((live.return_ + reward_last) * (last > 0)).sum(),
            ((live.length + length_last) * (last > 0)).sum(),
            *((storage["episode/" + key] * ended).sum() for key in self.envs.episode_keys),
        ]
        return_ = reward[-1] + torch.where(last > 0, -reward_last, live.return_)
        length = length[-1] + torch.where(last > 0, -length_last, live.length)
        return live._replace(return_=return_, length=length), torch.stack([total.double() for total in totals])

    def _finish_broken(self, live: Live, ended: Tensor, broken: Tensor) -> tuple[Live, Tensor]:
        """As `finish`, where environments failed in the middle of an episode, which counts for nothing.

        The step before a broken one is cut as a truncation is: what follows it is valued by its own observation.
        """
        storage, return_, length = self.storage, live.return_, live.length
        totals = return_.new_zeros(3 + len(self.envs.episode_keys))
        for t in range(self.horizon):
            return_, length = return_ + storage["reward"][t], length + storage["valid"][t]
            values = [storage["episode/" + key][t] for key in self.envs.episode_keys]
            totals += torch.stack([(ended[t] * each).sum().double() for each in (ended[t], return_, length, *values)])
            over = ended[t] | broken[t]
            return_, length = return_.masked_fill(over, 0), length.masked_fill(over, 0)
            if t and broken[t].any():
                self.keep_last(self.steps[t - 1], broken[t].nonzero()[:, 0], storage["obs"][t])
                storage["truncated"][t - 1] |= broken[t]
        return live._replace(return_=return_, length=length), totals

    def state_dict(self) -> dict[str, Any]:
        """All that makes the next rollout what it would be now: plain types, and copies of tensors where they are."""
        envs = self.envs.state_dict()
        live = {name: leaf for name, leaf in self.live._asdict().items() if envs and name != "envs"}
        return {"generator": self.generator.get_state(), "envs": envs, "live": mapped(torch.clone, live)}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Continue from `state_dict`, on the device of the environments.

        Returns: False where the environments could not be saved: their episodes have begun anew.
        """
        restore_generator(self.generator, state["generator"])
        if not state["envs"]:
            self.start(int(torch.randint(2**31, (1,), generator=self.generator, device=self.generator.device)))
            return False
        self.envs.load_state_dict(state["envs"])
        live = mapped(lambda leaf: leaf.to(self.envs.device, copy=True), state["live"])
        self.live = Live(**live, envs=self.pure.state if self.pure else {})
        return True
