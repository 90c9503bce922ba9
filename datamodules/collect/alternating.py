"""Collecting from a worker pool: one half of the rows steps while the actor decides for the other."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from datamodules.collect.collector import Collector
from datamodules.collect.rollout_buffer import Live, Row, of
from datamodules.core.phase import Joint
from datamodules.core.protocols import Actor, VectorEnv
from datamodules.core.pytree import mapped
from datamodules.core.types import State, Step, masks_of
from datamodules.worker_pool.vector_env import PoolEnv


class HalvedCollector(Collector):
    """A Collector that keeps a worker pool and the actor busy at the same time.

    Every action still comes from the newest observation of its rows and the weights as they are: nothing is stale, and
    when a rollout ends no step is under way.
    """

    noise: Tensor
    state: State

    def __init__(self, envs: VectorEnv, actor: Actor, horizon: int, generator: torch.Generator, name: str):
        super().__init__(envs, actor, horizon, generator, name)
        self.pool = cast(PoolEnv, envs)
        self.acting = self.halves = [Half(self, half) for half in (0, 1)]

    def roll(self, live: Live, noise: Tensor, env_noise: Tensor | None) -> tuple[Live, Tensor]:
        """T steps into storage, half by half: what is live afterwards, and the totals of the episodes that ended."""
        self.begin(live)
        self.noise.copy_(noise)
        for name, leaf in live.actor.items():
            self.state[name].copy_(leaf)
        for t in range(self.horizon):
            for half in self.halves:
                half.send(t)
        for half in self.halves:
            half.receive()
        step = self.pool.latest
        reset = step.terminated | step.truncated | ~step.valid
        obs, masks = self.storage["obs"][-1], masks_of(step.info)
        return self.finish(live._replace(obs=obs, masks=masks, actor=self.state, reset=reset))

    def _allocate(self, noise: Tensor) -> None:
        super()._allocate(noise)
        self.noise, self.state = torch.empty_like(noise), mapped(torch.empty_like, self.live.actor)
        for half in self.halves:
            half.allocate()


class Half:
    """A half of the rows, and what happens between two of its steps, which a GPU is given in one launch.

    To that end the environments' answer and the number of the step are read from host memory, pinned where there is a
    GPU, the action is written there, and everything else stays in its place.

    Args:
        collector: whose rows, storage and actor it uses.   half: 0 or 1.

    Attributes:
        joint: `turn`, in the form that it has.
    """

    noise: Tensor
    state: State
    action: Tensor
    places: list[Row]

    def __init__(self, collector: "HalvedCollector", half: int):
        self.collector, self.half, self.rows = collector, half, collector.pool.halves[half]
        self.device = collector.pool.device
        self.pinned = self.device.type == "cuda"
        self.number = torch.zeros(1, dtype=torch.int64, pin_memory=self.pinned)
        self._number = self.number.numpy()
        self.at = 0
        self.t, self.before = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
        self.joint: Joint[tuple[()]] = Joint(
            self.turn,
            self.device,
            name="acting",
            parts=[(self, "advance")] if getattr(collector.actor, "compilable", True) else [],
            owned=lambda: self.state.values(),
            timed=False,
        )

    def allocate(self) -> None:
        """Cut this half's part out of the collector's storage, once that is there."""
        columns = self.collector.storage.items()
        storage = {name: column[:, self.rows] for name, column in columns if not name.startswith("state/")}
        self.noise = self.collector.noise[:, self.rows]
        self.state = mapped(lambda leaf: leaf[self.rows], self.collector.state)
        self.action = torch.empty_like(storage["action"][0], device="cpu", pin_memory=self.pinned)
        horizon = range(self.collector.horizon + 1)
        numbers = [(self.t, self.before)] if self.pinned else [(t, max(t - 1, 0)) for t in horizon]
        self.places = [_place(storage, *each) for each in numbers]

    def send(self, t: int) -> None:
        """Wait for step t - 1, decide step t, and let it begin."""
        self._wait(t)
        self._number[0] = t
        self.joint()
        if self.pinned:
            torch.cuda.current_stream(self.device).synchronize()
        self.collector.pool.send(self.half, self.action)

    def receive(self) -> None:
        """Wait for the last step of a rollout, and write it."""
        self._wait(self.collector.horizon)
        self.t.fill_(self.collector.horizon)
        self.write(self.collector.pool.bring(self.half), self.places[self.at])

    def turn(self) -> tuple[()]:
        """Fetch the answer to step t - 1, advance, and hand the action of step t out."""
        self.t.copy_(self.number, non_blocking=True)
        action = self.advance(self.collector.pool.bring(self.half), self.places[self.at])
        self.action.copy_(action, non_blocking=True)
        return ()

    def advance(self, step: Step, row: Row) -> Tensor:
        """Write the step that came, decide the next one, and write that; its action."""
        live = self.write(step, row)
        noise = self.noise.index_select(0, self.t)[0]
        decision, state = self.collector.decide(live, noise, row, self.collector.actor.act)
        for name, leaf in state.items():
            self.state[name].copy_(leaf)
        return decision.action

    def write(self, step: Step, row: Row) -> Live:
        """Write step t - 1, the first place being written twice; what to decide on at t."""
        self.before.copy_((self.t - 1).clamp(min=0))
        masks, ended = self.collector.record(step, row)
        reset = torch.where(self.t > 0, ended, self.collector.storage["reset"][0, self.rows])
        return self.collector.live._replace(obs=step.obs, masks=masks, actor=self.state, reset=reset)

    def _wait(self, t: int) -> None:
        """Wait for step t - 1; its truncated rows leave their true last observations."""
        pool, self.at = self.collector.pool, 0 if self.pinned else t
        if t and pool.wait(self.half):
            self.collector.keep_obs(self.collector.steps[t - 1], pool.bring(self.half, final=True), self.rows.start)


class _Slot(NamedTuple):
    """One step of a column `[T, B, ...]` whose number `t` `[1]` only the device knows."""

    column: Tensor
    t: Tensor

    def copy_(self, value: Tensor) -> None:
        """Write it."""
        self.column.index_copy_(0, self.t, value.unsqueeze(0).to(self.column.dtype))


def _place(storage: dict[str, Tensor], t: int | Tensor, before: int | Tensor) -> Row:
    """Where step t is decided and the one before answered: views, or, where only the device knows t, `_Slot`s."""

    def at(column: Tensor, number: int | Tensor) -> Tensor:
        if isinstance(number, int):
            return column[min(number, len(column) - 1)]
        return cast(Tensor, _Slot(column, number))

    answer: dict[str, Any] = {
        name: at(storage[name], before) for name in ("reward", "terminated", "truncated", "valid")
    }
    extras = {name: at(column, t) for name, column in of("extras/", storage).items()}
    return Row(at(storage["obs"], t), at(storage["action"], t), **answer, extras=extras, episode={})
