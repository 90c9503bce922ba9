"""Collecting the next rollout while the last one is learned from."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import torch

from datamodules.collect import Collector
from datamodules.nested import mapped, tensors
from datamodules.types import Rollout


class Collected(NamedTuple):
    """A rollout, and when the device has it; None where there is nothing to wait for."""

    rollout: Rollout
    done: torch.cuda.Event | None


class Ahead:
    """Lets a collector work in a thread of its own, one rollout ahead of the learning.

    What iteration n learns from was begun when iteration n - 1 was about to learn, and with the weights of then: the
    collector's actor is a copy that is brought up to date between two rollouts only. So the policy is older by one
    iteration than what learns, never by more, and a run repeats exactly however the threads take turns. The first
    rollout has no lag. Nothing goes on beside the first iteration, in which joints take their form.

    A state is that from which the rollout under way began, so a resumed run collects it again. On a GPU the thread has
    a stream of its own.

    Args:
        collector: whose `actor` is a twin of `module`; nobody else collects with it.
        module: what learns (`modules.algorithm.Algorithm`).
        context: that the actor decides in: the Trainer's precision.

    Attributes:
        lag: iterations of learning that the weights which collected the last rollout have not seen.
    """

    def __init__(self, collector: Collector, module: Any, context: Callable[[], AbstractContextManager[Any]]):
        self.collector, self.context, self.lag = collector, context, 0
        self._actor = cast(Any, collector.actor)
        self._copies = [*self._actor.parameters(), *self._actor.buffers()]
        self._weights = [*module.parameters(), *module.buffers()]
        self._learned: int | None = None
        self._origin: dict[str, Any] | None = None
        self._under_way: Future[Collected] | None = None
        self._formed, self._memory = False, cast(Any, None)
        self._thread = ThreadPoolExecutor(1, "collect")
        self._device = collector.envs.device
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None

    def collect(self, iteration: int, last: bool) -> Rollout:
        """The rollout that was collected ahead; the next one begins.

        Args:
            iteration: that learns from it, from 0 on.
            last: whether no other follows.

        Raises: whatever the environments raised.
        """
        if self._learned is None:
            self._catch_up(iteration)
        rollout = self._kept(self._finished())
        self.lag = iteration - cast(int, self._learned)
        self._catch_up(iteration)
        if self._formed and not last:
            self._origin, self._under_way = self.collector.state_dict(), self._begun()
        self._formed = True
        return rollout

    def settle(self) -> None:
        """Wait until nothing is under way; what was collected is kept for `collect`."""
        if self._under_way is not None:
            wait([self._under_way])

    def close(self) -> None:
        """Wait for the rollout under way, which nobody learns from, and end the thread."""
        self._thread.shutdown()

    def state_dict(self) -> dict[str, Any]:
        """The collector's as it was when the rollout under way began, and the weights that collect it."""
        origin = self.collector.state_dict() if self._origin is None else self._origin
        weights = mapped(torch.clone, dict(self._actor.state_dict()))
        return origin | {"ahead": {"learned": self._learned, "weights": weights}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `ahead` in a `state_dict`; the rest of it is for the collector."""
        self._learned = state["learned"]
        self._actor.load_state_dict(state["weights"])

    @torch.no_grad()
    def _catch_up(self, iteration: int) -> None:
        """Let the copy be what learns, which has seen that many iterations."""
        torch._foreach_copy_(self._copies, self._weights)
        self._learned = iteration

    def _begun(self) -> Future[Collected]:
        return self._thread.submit(self._collect, self._now())

    def _collect(self, ready: torch.cuda.Event | None) -> Collected:
        """What the thread does, once the device has what it reads."""
        if ready is None or self._stream is None:
            with self.context():
                return Collected(self.collector.collect(), None)
        self._stream.wait_event(ready)
        with self.context(), torch.cuda.stream(self._stream):
            return Collected(self.collector.collect(), self._now())

    def _finished(self) -> Rollout:
        """The rollout under way, or one from its beginning."""
        under_way = self._under_way or self._begun()
        self._under_way, self._origin = None, None
        rollout, done = under_way.result()
        if done is not None:
            torch.cuda.current_stream(self._device).wait_event(done)
        return rollout

    def _kept(self, rollout: Rollout) -> Rollout:
        """The rollout in memory that collecting does not write to."""
        pairs = [*zip(tensors(self._memory), tensors(rollout), strict=False)]
        if pairs and all(mine.shape == its.shape for mine, its in pairs):
            for mine, its in pairs:
                mine.copy_(its)
        else:
            self._memory = mapped(torch.clone, rollout)
        return self._memory._replace(env_steps=rollout.env_steps)

    def _now(self) -> torch.cuda.Event | None:
        """When a GPU has done what it was given so far."""
        return None if self._stream is None else torch.cuda.current_stream(self._device).record_event()
