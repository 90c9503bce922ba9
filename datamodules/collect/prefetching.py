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

CLOSE_TIMEOUT = 10.0
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
        self._weights_iteration: int | None = None
        self._start_state: dict[str, Any] | None = None
        self._pending: Future[Rollout] | None = None
        self._is_first, self._output = True, cast(Any, None)
        self._thread: Thread | None = None
        self._requests = SimpleQueue[Future[Rollout] | None]()
        self._device = collector.envs.device
        self._stream = torch.cuda.Stream(self._device, priority=-1) if self._device.type == "cuda" else None
        self._weights_copied: torch.cuda.Event | None = None

    def collect(self, iteration: int, last: bool) -> Rollout:
        """Return the rollout that was collected ahead, and start the next one.

        Args:
            iteration: iteration that learns from it, starting at 0.
            last: True if it is the last iteration.

        Raises: any error of the environments.
        """
        if self._weights_iteration is None:
            self._sync_weights(iteration)
        rollout = self._copy_out(self._next_rollout())
        self.policy_lag = iteration - cast(int, self._weights_iteration)
        self._sync_weights(iteration)
        if self._stream is None and not self._is_first and not last:
            self._start_state = self.collector.state_dict()
            self._pending = self._submit()
        self._is_first = False
        return rollout

    def wait(self) -> None:
        """Wait for the pending rollout; it is kept for `collect`."""
        if self._pending is not None:
            wait([self._pending])

    def close(self, seconds: float | None = None) -> None:
        """Wait for the pending rollout, at most `seconds` (None: `CLOSE_TIMEOUT`), end the thread, report its error.

        A thread blocked in an environment cannot be interrupted; it is a daemon and does not keep the process alive.
        """
        self._requests.put(None)
        seconds = CLOSE_TIMEOUT if seconds is None else seconds
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                rank_zero_warn(f"The rollout pending at the end did not finish within {seconds:g} s: it is abandoned.")
        pending, self._pending = self._pending, None
        error = pending.exception() if pending is not None and pending.done() else None
        if error is not None:
            rank_zero_warn(f"The rollout pending at the end of the run, which is not used, failed: {error!r}")

    def start_state(self) -> dict[str, Any]:
        """Return the collector's state at the start of the pending or next rollout."""
        return self.collector.state_dict() if self._start_state is None else self._start_state

    def state_dict(self) -> dict[str, Any]:
        """Return the weights that collect the pending rollout, equal on all ranks, and their iteration."""
        return {"learned": self._weights_iteration, "weights": tree_map(torch.clone, self._copies)}

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
        self._weights_iteration = iteration
        if self._stream is not None:
            self._weights_copied = torch.cuda.current_stream(self._device).record_event()

    def _submit(self) -> "Future[Rollout]":
        """Start collecting a rollout in the thread."""
        if self._thread is None:  # a daemon, so that it does not keep the process alive
            self._thread = Thread(target=self._worker_loop, name="collect", daemon=True)
            self._thread.start()
        request = Future[Rollout]()
        self._requests.put(request)
        return request

    def _worker_loop(self) -> None:
        for request in iter(self._requests.get, None):
            try:
                request.set_result(self._collect_rollout())
            except BaseException as error:
                request.set_exception(error)

    def _next_rollout(self) -> Rollout:
        """Return the pending rollout, or collect one."""
        pending, self._pending = self._pending, None
        rollout = self._collect_rollout() if pending is None else pending.result()
        self._start_state = None
        return rollout

    def _collect_rollout(self) -> Rollout:
        """Collect a rollout with the copied weights; on a GPU on the separate stream."""
        if self._stream is None or self._weights_copied is None:
            with self.context():
                return self.collector.collect()
        self._stream.wait_event(self._weights_copied)
        with self.context(), torch.cuda.stream(self._stream):
            rollout = self.collector.collect()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return rollout

    def _copy_out(self, rollout: Rollout) -> Rollout:
        """Copy the rollout to memory that the collector does not write to."""
        pairs = [*zip(tree_leaves(self._output), tree_leaves(rollout), strict=False)]
        if pairs and all(copy.shape == source.shape for copy, source in pairs):
            for copy, source in pairs:
                copy.copy_(source)
        else:
            self._output = tree_map(torch.clone, rollout)
        return self._output._replace(env_steps=rollout.env_steps)


def _weights(module: Any) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module by name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())
