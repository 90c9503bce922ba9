"""Collecting the next rollout while the last one is learned from."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from datamodules.collect.collector import Collector
from datamodules.core.pytree import mapped, tensors
from datamodules.core.types import Rollout

GRACE = 10.0
"""Seconds that a rollout under way is given when a run ends."""


class Ahead:
    """Lets a collector work one rollout ahead of the learning.

    What iteration n learns from is collected with the weights that iteration n - 1 began with, by a twin that is
    brought up to date in between: parameters, buffers, numbers; what acting changes in it is lost then. So the policy
    is older by one iteration than what learns, never by more, and a run repeats exactly, whoever is faster, unless
    networks or environments draw from torch's or numpy's own generators. The first rollout has no lag.

    On a CPU the collector works in a thread while the loop learns; not beside the first iteration, in which joints take
    their form. A GPU learns by itself once it was told how, so nothing needs a thread there: the next rollout is
    collected on a stream of its own, of high priority, which waits for the weights and not for the learning.

    A state is that from which the rollout under way began, `origin` and the twin's weights, so that a resumed run
    collects it again.

    Args:
        collector: whose `actor` is a twin of `module`; nobody else collects with it.
        module: what learns (`modules.base.algorithm.Algorithm`).
        context: that the actor decides in: the Trainer's precision.

    Attributes:
        lag: iterations of learning that the weights which collected the last rollout have not seen.
    """

    def __init__(self, collector: Collector, module: Any, context: Callable[[], AbstractContextManager[Any]]):
        self.collector, self.module, self.context, self.lag = collector, module, context, 0
        self._copies = _weights(collector.actor)
        self._learned: int | None = None
        self._origin: dict[str, Any] | None = None
        self._under_way: Future[Rollout] | None = None
        self._formed, self._memory = False, cast(Any, None)
        self._thread: Thread | None = None
        self._ordered = SimpleQueue[Future[Rollout] | None]()
        self._device = collector.envs.device
        self._stream = torch.cuda.Stream(self._device, priority=-1) if self._device.type == "cuda" else None
        self._weights_taken: torch.cuda.Event | None = None

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
        if self._stream is None and self._formed and not last:
            self._origin = self.collector.state_dict()
            self._under_way = self._begun()
        self._formed = True
        return rollout

    def settle(self) -> None:
        """Wait until nothing is under way; what was collected is kept for `collect`."""
        if self._under_way is not None:
            wait([self._under_way])

    def close(self, seconds: float | None = None) -> None:
        """Wait for the rollout under way, for so long at most (`GRACE`), and end the thread; say what failed in it.

        A thread in an environment that does not come back is left behind: nothing can interrupt it, and it keeps no
        program alive.
        """
        self._ordered.put(None)
        seconds = GRACE if seconds is None else seconds
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                rank_zero_warn(
                    f"The rollout under way at the end did not finish within {seconds:g} s: it is left behind."
                )
        under_way, self._under_way = self._under_way, None
        error = under_way.exception() if under_way is not None and under_way.done() else None
        if error is not None:
            rank_zero_warn(f"The rollout under way at the end, from which nothing is learned, failed: {error!r}")

    def origin(self) -> dict[str, Any]:
        """The collector's state from which the rollout under way began, or the next one will."""
        return self.collector.state_dict() if self._origin is None else self._origin

    def state_dict(self) -> dict[str, Any]:
        """The weights that collect the rollout under way, the same on all ranks, and what they have learned from."""
        return {"learned": self._learned, "weights": mapped(torch.clone, self._copies)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, with a collector that continues from `origin`."""
        for name, weight in state["weights"].items():
            self._copies[name].data.copy_(weight)
        self._note(state["learned"])

    @torch.no_grad()
    def _catch_up(self, iteration: int) -> None:
        """Let the twin be what learns, which has seen that many iterations."""
        weights = _weights(self.module)  # looked up anew: a buffer may have become another tensor
        torch._foreach_copy_([*self._copies.values()], [weights[name] for name in self._copies])
        numbers = {name: value for name, value in vars(self.module).items() if isinstance(value, int | float)}
        vars(self.collector.actor).update(numbers)
        self._note(iteration)

    def _note(self, iteration: int | None) -> None:
        """Remember which weights the twin has, and when a GPU will have them."""
        self._learned = iteration
        if self._stream is not None:
            self._weights_taken = torch.cuda.current_stream(self._device).record_event()

    def _begun(self) -> "Future[Rollout]":
        """A rollout that the thread begins."""
        if self._thread is None:  # a daemon, which does not keep a program alive whose user wants it to end
            self._thread = Thread(target=self._serve, name="collect", daemon=True)
            self._thread.start()
        begun = Future[Rollout]()
        self._ordered.put(begun)
        return begun

    def _serve(self) -> None:
        for begun in iter(self._ordered.get, None):
            try:
                begun.set_result(self._collected())
            except BaseException as error:
                begun.set_exception(error)

    def _finished(self) -> Rollout:
        """The rollout under way, or one from its beginning."""
        under_way, self._under_way = self._under_way, None
        rollout = self._collected() if under_way is None else under_way.result()
        self._origin = None
        return rollout

    def _collected(self) -> Rollout:
        """A rollout with the twin as it is; on a GPU, on its stream."""
        if self._stream is None or self._weights_taken is None:
            with self.context():
                return self.collector.collect()
        self._stream.wait_event(self._weights_taken)
        with self.context(), torch.cuda.stream(self._stream):
            rollout = self.collector.collect()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
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


def _weights(module: Any) -> dict[str, Tensor]:
    """All that decides what a module does, by name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())
