"""PrefetchingCollector: collect the next rollout while the algorithm learns from the last one."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from datamodules.collect.collector import RolloutCollector
from datamodules.core.pytree import tree_leaves, tree_map
from datamodules.core.types import Rollout

GRACE = 10.0
"""Seconds to wait for a running rollout when a run ends."""


class PrefetchingCollector:
    """Collector that works one rollout ahead of learning.

    Iteration n learns from a rollout collected with the weights at the start of iteration n - 1. The policy is a copy
    of the module; parameters, buffers and numbers are synchronized before each rollout, which overwrites changes made
    by acting. The policy lag is therefore at most one iteration, and runs are reproducible whatever the timing, unless
    networks or environments draw from the global generators of PyTorch or NumPy. The first rollout has no lag.

    On a CPU the collector runs in a thread while the training loop learns, except in the first iteration, in which
    phases compile. On a GPU no thread is needed: the next rollout is collected on a separate stream of high priority,
    which waits for the weights but not for the update.

    The saved state is that at the start of the pending rollout (`start_state` and the copied weights), so that a
    resumed run collects it again.

    Args:
        collector: collector whose `policy` is a copy of `module`; it must not be used elsewhere.
        module: the algorithm (`modules.base.algorithm.Algorithm`).
        context: context of the policy calls: the Trainer's precision.

    Attributes:
        policy_lag: iterations of learning between the weights that collected the last rollout and the current ones.
    """

    def __init__(self, collector: RolloutCollector, module: Any, context: Callable[[], AbstractContextManager[Any]]):
        self.collector, self.module, self.context, self.policy_lag = collector, module, context, 0
        self._copies = _weights(collector.policy)
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
        """Return the rollout that was collected ahead, and start the next one.

        Args:
            iteration: iteration that learns from it, starting at 0.
            last: True if it is the last iteration.

        Raises: any error of the environments.
        """
        if self._learned is None:
            self._sync_weights(iteration)
        rollout = self._copy_out(self._finished())
        self.policy_lag = iteration - cast(int, self._learned)
        self._sync_weights(iteration)
        if self._stream is None and self._formed and not last:
            self._origin = self.collector.state_dict()
            self._under_way = self._submit()
        self._formed = True
        return rollout

    def wait(self) -> None:
        """Wait for the pending rollout; it is kept for `collect`."""
        if self._under_way is not None:
            wait([self._under_way])

    def close(self, seconds: float | None = None) -> None:
        """Wait for the pending rollout, at most `seconds` (default `GRACE`), end the thread and report its error.

        A thread blocked in an environment cannot be interrupted; it is a daemon and does not keep the process alive.
        """
        self._ordered.put(None)
        seconds = GRACE if seconds is None else seconds
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                rank_zero_warn(f"The rollout pending at the end did not finish within {seconds:g} s: it is abandoned.")
        under_way, self._under_way = self._under_way, None
        error = under_way.exception() if under_way is not None and under_way.done() else None
        if error is not None:
            rank_zero_warn(f"The rollout pending at the end of the run, which is not used, failed: {error!r}")

    def start_state(self) -> dict[str, Any]:
        """Return the collector's state at the start of the pending or next rollout."""
        return self.collector.state_dict() if self._origin is None else self._origin

    def state_dict(self) -> dict[str, Any]:
        """Return the weights that collect the pending rollout, equal on all ranks, and their iteration."""
        return {"learned": self._learned, "weights": tree_map(torch.clone, self._copies)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`; the collector must be restored from `start_state`."""
        for name, weight in state["weights"].items():
            self._copies[name].data.copy_(weight)
        self._mark_synced(state["learned"])

    @torch.no_grad()
    def _sync_weights(self, iteration: int) -> None:
        """Copy the module's weights after this iteration to the policy."""
        weights = _weights(self.module)  # looked up again: a buffer may have been replaced
        torch._foreach_copy_([*self._copies.values()], [weights[name] for name in self._copies])
        numbers = {name: value for name, value in vars(self.module).items() if isinstance(value, int | float)}
        vars(self.collector.policy).update(numbers)
        self._mark_synced(iteration)

    def _mark_synced(self, iteration: int | None) -> None:
        """Record the iteration of the copied weights, and on a GPU the event of the copy."""
        self._learned = iteration
        if self._stream is not None:
            self._weights_taken = torch.cuda.current_stream(self._device).record_event()

    def _submit(self) -> "Future[Rollout]":
        """Start collecting a rollout in the thread."""
        if self._thread is None:  # a daemon, so that it does not keep the process alive
            self._thread = Thread(target=self._worker_loop, name="collect", daemon=True)
            self._thread.start()
        begun = Future[Rollout]()
        self._ordered.put(begun)
        return begun

    def _worker_loop(self) -> None:
        for begun in iter(self._ordered.get, None):
            try:
                begun.set_result(self._collected())
            except BaseException as error:
                begun.set_exception(error)

    def _finished(self) -> Rollout:
        """Return the pending rollout, or collect one."""
        under_way, self._under_way = self._under_way, None
        rollout = self._collected() if under_way is None else under_way.result()
        self._origin = None
        return rollout

    def _collected(self) -> Rollout:
        """Collect a rollout with the copied weights; on a GPU on the separate stream."""
        if self._stream is None or self._weights_taken is None:
            with self.context():
                return self.collector.collect()
        self._stream.wait_event(self._weights_taken)
        with self.context(), torch.cuda.stream(self._stream):
            rollout = self.collector.collect()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return rollout

    def _copy_out(self, rollout: Rollout) -> Rollout:
        """Copy the rollout to memory that the collector does not write to."""
        pairs = [*zip(tree_leaves(self._memory), tree_leaves(rollout), strict=False)]
        if pairs and all(mine.shape == its.shape for mine, its in pairs):
            for mine, its in pairs:
                mine.copy_(its)
        else:
            self._memory = tree_map(torch.clone, rollout)
        return self._memory._replace(env_steps=rollout.env_steps)


def _weights(module: Any) -> dict[str, Tensor]:
    """Return the parameters, buffers and numbers of a module by name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())
