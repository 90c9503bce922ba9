"""Phase: a part of the training iteration (collect, prepare, update) that is timed and can be compiled or captured."""

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any, Generic, Literal, TypeVar, cast

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, distributed

from datamodules.core.pytree import tree_leaves

log = logging.getLogger(__name__)

Mode = Literal["off", "default", "reduce-overhead", "max-autotune", "graph"]
Result = TypeVar("Result")

CPU_INDUCTOR_OPTIONS: dict[str, Any] = {"cpp_wrapper": True, "cpp.vec_isa_ok": True, "triton.cudagraphs": False}
"""Inductor options on a CPU: C++ wrapper, because the kernels are short, and no trial compilation for the ISA check."""

MAX_PENDING_EVENTS = 100
"""Number of pending CUDA event pairs from which their times are added up before the next `pop_seconds`."""


class Phase(Generic[Result]):
    """Callable that times a function and runs it eagerly, compiled, or as one CUDA graph.

    In mode `graph` the compile targets are compiled and the whole function is captured at its first call (the current
    stream must not be the default stream). The graph reads fixed addresses: later arguments are copied to the
    addresses of the first call, and each call overwrites the results of the previous one. If compilation or capture
    fails, the next slower mode is used, with one warning that gives the reason. All ranks use the same mode: if a mode
    fails on one rank, no rank uses it. On a CUDA device the time is measured with events, without synchronization.
    `pop_seconds` may be called from another thread.

    Args:
        function: takes tensors in nested tuples and dictionaries; must draw no random numbers and read no value back.
        device: device that executes the function.
        name: name in warnings.
        compile_targets: (owner, attribute) of the inner functions to compile, each as one graph.
        mutated_tensors: returns the tensors that the function changes; restored after the warm-up calls of a capture.
        capturable: False if a call has effects outside tensors, such as stepping an external environment; it is never
            captured then, since the warm-up calls would repeat them.
        timed: False for a part of another phase, which already counts the time.

    Attributes:
        mode: requested mode, tried at the first call.
        backend: backend of `torch.compile`.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        device: torch.device,
        *,
        name: str = "phase",
        compile_targets: Sequence[tuple[Any, str]] = (),
        mutated_tensors: Callable[[], Iterable[Tensor]] = tuple,
        capturable: bool = True,
        timed: bool = True,
    ):
        self.function, self.device, self.name = function, device, name
        self.compile_targets, self.mutated_tensors = compile_targets, mutated_tensors
        self.capturable, self.timed = capturable, timed
        self.mode: Mode = "off"
        self.backend = "inductor"
        self.compiled = False
        self.warmup_seconds = 0.0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._results: Result | None = None
        self._ready = False
        self._seconds, self._lock = 0.0, threading.Lock()
        self._events: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @property
    def execution_mode(self) -> str:
        """Return the mode in use: CUDA graph of compiled parts, CUDA graph, compiled, or eager."""
        if self._graph is not None:
            return "compiled, one CUDA graph" if self.compiled else "one CUDA graph"
        return "compiled" if self.compiled else "eager"

    def __call__(self, *args: Any) -> Result:
        """Call the function and add the elapsed time."""
        if not self._ready:
            return self._first_call(args)
        if not self.timed:
            return self._run(args)
        if self.device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            result = self._run(args)
            end.record()
            self._events.append((start, end))
            if len(self._events) > MAX_PENDING_EVENTS:
                self._add_event_times()
            return result
        start_time = time.perf_counter()
        result = self._run(args)
        with self._lock:
            self._seconds += time.perf_counter() - start_time
        return result

    def pop_seconds(self) -> float:
        """Return the seconds spent in finished calls since the previous request, without the first call (warm-up).

        On a GPU, calls still running are counted at the next request, so that this method does not synchronize.
        """
        self._add_event_times()
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds

    def release_graph(self) -> None:
        """Free the CUDA graph and the compiled functions; the next call compiles and captures again.

        A graph holds the communicator of its collectives, which cannot be closed before. Compiled functions are
        attributes of their owner, for example the module, which outlives the run.
        """
        if self._graph is not None:
            torch.cuda.synchronize(self.device)
        if self._graph is not None or self.compiled:
            self._ready, self._inputs = False, []
            self._reset()

    def _add_event_times(self) -> None:
        """Replace the events of finished calls by their elapsed time."""
        with self._lock:
            while self._events and self._events[0][1].query():
                start, end = self._events.popleft()
                self._seconds += start.elapsed_time(end) / 1e3

    def _run(self, args: tuple[Any, ...]) -> Result:
        if self._graph is None:
            return self.function(*args)
        if [tensor.shape for tensor in tree_leaves(args)] != [tensor.shape for tensor in self._inputs]:
            self._capture(args, [(tensor, tensor.clone()) for tensor in self.mutated_tensors()])
        self._copy_in(args)
        self._graph.replay()
        return cast(Result, self._results)

    def _first_call(self, args: tuple[Any, ...]) -> Result:
        """Run the first call in the fastest mode that works on every rank."""
        start_time = time.perf_counter()
        saved = [(tensor, tensor.clone()) for tensor in self.mutated_tensors()] if self.mode != "off" else []
        results: list[Result] = []
        for compiled, captured in _candidate_modes(self.mode, bool(self.compile_targets), self.capturable):
            targets, error = self._compile() if compiled else [], None
            try:
                if captured:
                    self._capture(args, saved)
                else:
                    results.append(self.function(*args))
            except Exception as exception:
                error = exception
            error = next((target.error for target in targets if target.error is not None), error)
            if not (reason := _first_error_of_ranks(self._error_summary(error))):
                for target in targets:
                    target.commit()
                break
            self._fall_back(reason, captured)
            if not results:
                _restore_tensors(saved, self.mutated_tensors())
        result = results[0] if results else self._run(args)
        self._ready = True
        self.warmup_seconds = time.perf_counter() - start_time
        return result

    def _compile(self) -> "list[_CompiledTarget]":
        mode = "default" if self.mode == "graph" else self.mode
        options = torch._inductor.list_mode_options(mode) | (CPU_INDUCTOR_OPTIONS if self.device.type == "cpu" else {})
        settings = {"backend": self.backend} | ({"options": options} if self.backend == "inductor" else {})
        self.compiled = True
        return [_CompiledTarget(owner, attribute, settings) for owner, attribute in self.compile_targets]

    def _capture(self, args: tuple[Any, ...], saved: list[tuple[Tensor, Tensor]]) -> None:
        self._inputs = tree_leaves(args)
        for _ in range(3):
            self.function(*args)
        _restore_tensors(saved, self.mutated_tensors())
        torch.clear_autocast_cache()  # else the graph would read the weight casts of the warm-up calls
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._results = self.function(*args)
        except Exception:
            generator = torch.cuda.default_generators[stream.device_index]
            generator.graphsafe_set_state(generator.clone_state())  # the old state may still be marked as capturing
            raise
        torch.clear_autocast_cache()
        self._graph = graph

    def _copy_in(self, args: tuple[Any, ...]) -> None:
        pairs = [(old, new) for old, new in zip(self._inputs, tree_leaves(args), strict=True) if _moved(old, new)]
        for dtype in dict.fromkeys(old.dtype for old, _ in pairs):
            same_dtype = [(old, new) for old, new in pairs if old.dtype == dtype]
            torch._foreach_copy_([old for old, _ in same_dtype], [new for _, new in same_dtype])

    def _error_summary(self, error: Exception | None) -> str:
        """Return a one-line summary of the error; empty if there was none."""
        if error is None:
            return ""
        root = _root_cause(error)
        log.debug("%s fell back", self.name, exc_info=root)
        return f"{type(root).__name__}: {root}".strip().split("\n")[0]

    def _reset(self) -> None:
        self._graph, self._results, self.compiled = None, None, False
        self.restore_targets()

    def restore_targets(self) -> None:
        """Replace compiled functions by the original ones."""
        for owner, attribute in self.compile_targets:
            owner.__dict__.pop(attribute, None)

    def _fall_back(self, reason: str, captured: bool) -> None:
        self._reset()
        mode = "captured as a CUDA graph" if captured else "compiled"
        rank_zero_warn(f"{self.name} cannot be {mode} ({reason}): the run continues without it, more slowly.")


class _CompiledTarget:
    """Compiled function that replaces the original attribute and falls back to the original if it fails.

    A rank on which compilation fails therefore makes the same collective calls as the others, and no rank waits.
    """

    def __init__(self, owner: Any, attribute: str, settings: dict[str, Any]):
        self.owner, self.attribute, self.original = owner, attribute, getattr(owner, attribute)
        function = _with_copied_code(torch._dynamo.eval_frame.innermost_fn(self.original))
        self.compiled: Any = torch.compile(function, fullgraph=True, dynamic=False, **settings)
        self.error: Exception | None = None
        setattr(owner, attribute, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is None:
            try:
                return self.compiled(*args, **kwargs)
            except Exception as error:
                self.error = error
        return self.original(*args, **kwargs)

    def commit(self) -> None:
        """Replace the attribute by the compiled function."""
        setattr(self.owner, self.attribute, self.compiled)


def _with_copied_code(function: Any) -> Any:
    """Copy a function or method so that its code object is its own; other callables are returned unchanged.

    Dynamo keeps compiled graphs, and counts recompilations, per code object. Shared code would let the phases of all
    runs in a process count towards one `torch._dynamo.config.recompile_limit`, and each call test the guards of all.
    The graphs are freed with the copy: Dynamo's map from compiled to original code would keep them.
    """
    if isinstance(function, MethodType):
        return MethodType(_with_copied_code(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace()
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    weakref.finalize(copy, torch._C._dynamo.eval_frame.reset_code, code).atexit = False
    return copy


def _first_error_of_ranks(summary: str) -> str:
    """Return the first non-empty error summary over all ranks, or an empty text. Every rank must call this."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return summary
    summaries = [summary] * distributed.get_world_size()
    distributed.all_gather_object(summaries, summary)
    return next(filter(None, summaries), "")


def _candidate_modes(mode: Mode, has_targets: bool, capturable: bool) -> list[tuple[bool, bool]]:
    """List the modes to try as (compiled, captured), fastest first; eager execution is not listed."""
    captured = [(True, True)] * has_targets + [(False, True)] if mode == "graph" and capturable else []
    compiled = [(True, False)] if mode not in ("off", "graph") and has_targets else []
    return [*captured, *compiled]


def _restore_tensors(saved: list[tuple[Tensor, Tensor]], mutated: Iterable[Tensor]) -> None:
    """Restore the values changed by warm-up calls; zero tensors that were created by them (optimizer state)."""
    saved_ids = {id(tensor) for tensor, _ in saved}
    with torch.no_grad():
        for tensor, value in saved:
            tensor.copy_(value)
        for tensor in mutated:
            if id(tensor) not in saved_ids:
                tensor.zero_()


def _root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain; ending a failed capture raises another one."""
    cause = error.__cause__ or error.__context__
    return error if cause is None else _root_cause(cause)


def _moved(old: Tensor, new: Tensor) -> bool:
    return old is not new and old.data_ptr() != new.data_ptr()
