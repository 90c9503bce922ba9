"""Collecting from a worker pool: one half of the rows steps while the actor decides for the other."""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from datamodules.acting import Acting
from datamodules.collect import Collector, Live, Row, of
from datamodules.joint import Joint
from datamodules.masks import masks_of
from datamodules.nested import mapped
from datamodules.pool import PoolEnv
from datamodules.types import Actor, State, VectorEnv


class HalvedCollector(Collector):
    """A Collector that keeps a worker pool and the actor busy at the same time.

    Every action still comes from the newest observation of its rows and the weights as they are: nothing is stale, and
    when a rollout ends no step is under way.
    """

    noise: Tensor
    state: State

    def __init__(self, envs: VectorEnv, actor: Actor, horizon: int, generator: torch.Generator):
        super().__init__(envs, actor, horizon, generator)
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
        reset = step.terminated | step.truncated
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
    row: Row

    def __init__(self, collector: "HalvedCollector", half: int):
        self.collector, self.half, self.rows = collector, half, collector.pool.halves[half]
        self.device = collector.pool.device
        self.pinned = self.device.type == "cuda"
        self.number = torch.zeros(1, dtype=torch.int64, pin_memory=self.pinned)
        self.t, self.before = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
        self.acting = Acting(collector.actor, self.device)
        self.joint: Joint[tuple[()]] = Joint(
            self.turn,
            self.device,
            name="acting",
            parts=self.acting.joint.parts,
            owned=lambda: self.state.values(),
            timed=False,
        )

    def allocate(self) -> None:
        """Cut this half's part out of the collector's storage, once that is there."""
        storage = {
            name: column[:, self.rows] for name, column in self.collector.storage.items() if "state/" not in name
        }
        self.noise, self.state = (
            self.collector.noise[:, self.rows],
            mapped(lambda leaf: leaf[self.rows], self.collector.state),
        )
        self.action = torch.empty_like(storage["action"][0], device="cpu", pin_memory=self.pinned)
        now, before = (lambda column: _late(column, self.t)), (lambda column: _late(column, self.before))
        answer = {name: before(storage[name]) for name in ("reward", "terminated", "truncated", "valid")}
        extras = {name: now(column) for name, column in of("extras/", storage).items()}
        self.row = Row(now(storage["obs"]), now(storage["action"]), **answer, extras=extras, episode={})

    def send(self, t: int) -> None:
        """Wait for step t - 1, decide step t, and let it begin."""
        self._wait(t)
        self.number[0] = t
        self.joint()
        if self.pinned:
            torch.cuda.current_stream(self.device).synchronize()
        self.collector.pool.send(self.half, self.action)

    def receive(self) -> None:
        """Wait for the last step of a rollout, and write it."""
        self._wait(self.collector.horizon)
        self.t.fill_(self.collector.horizon)
        self.write()

    def turn(self) -> tuple[()]:
        """Write the step that came, decide the next one, and write that."""
        self.t.copy_(self.number, non_blocking=True)
        live = self.write()
        noise = self.noise.index_select(0, self.t)[0]
        decision, state = self.collector.decide(live, noise, self.row, self.acting.ask)
        for name, leaf in state.items():
            self.state[name].copy_(leaf)
        self.action.copy_(decision.action, non_blocking=True)
        return ()

    def write(self) -> Live:
        """Write the step before t, the first place being written twice; what to decide on at t."""
        torch.sub(self.t, 1, out=self.before).clamp_(min=0)
        step = self.collector.pool.bring(self.half)
        masks, ended = self.collector.record(step, self.row)
        reset = torch.where(self.t > 0, ended, self.collector.storage["reset"][0, self.rows])
        return self.collector.live._replace(obs=step.obs, masks=masks, actor=self.state, reset=reset)

    def _wait(self, t: int) -> None:
        """Wait for step t - 1; its truncated rows leave their true last observations."""
        pool = self.collector.pool
        if t and pool.wait(self.half):
            self.collector.keep_obs(self.collector.steps[t - 1], pool.bring(self.half, final=True), self.rows.start)


class _Slot(NamedTuple):
    """One step of a column `[T, B, ...]` whose number `t` `[1]` only the device knows."""

    column: Tensor
    t: Tensor

    def copy_(self, value: Tensor) -> None:
        """Write it."""
        self.column.index_copy_(0, self.t, value.unsqueeze(0).to(self.column.dtype))


def _late(column: Tensor, t: Tensor) -> Tensor:
    """A place to write to, and no more, in the stead of `column[t]`."""
    return cast(Tensor, _Slot(column, t))
