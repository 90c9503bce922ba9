"""A joint: one of the three seams of an iteration (collect, prepare, update), with its cost and its compiled form."""

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

from datamodules.core.pytree import tensors

log = logging.getLogger(__name__)

Mode = Literal["off", "default", "reduce-overhead", "max-autotune", "graph"]
Result = TypeVar("Result")

ON_CPU: dict[str, Any] = {"cpp_wrapper": True, "cpp.vec_isa_ok": True, "triton.cudagraphs": False}
"""What the compiler is asked for on a CPU: kernels called from C++, as they are short, and no trial compilations."""

UNCOUNTED = 100
"""Calls whose events are kept before their time is added up, asked or not."""


class Joint(Generic[Result]):
    """A function called once or a few times an iteration: timed, and run eagerly, compiled, or as one CUDA graph.

    In mode `graph` the parts are compiled and the whole function is captured, at its first call (the current stream may
    not be the default one): what it reads stays at the addresses it had then, so arguments that come from elsewhere
    later are copied there first, and the results are overwritten by the next call. What cannot be compiled or captured
    runs as it can; one warning says why. Ranks that train together take the same form: what fails on one, none does.
    On a CUDA device the time is measured by events, so that calling a joint never waits for the device. Its time may be
    asked for while another thread calls it.

    Args:
        function: of tensors in any nesting of tuples and dictionaries; no randomness, no wish to see a value.
        device: where its work runs.
        name: what to call it in a warning.
        parts: (owner, attribute) of the functions inside that `torch.compile` takes, each as one graph.
        owned: the tensors that the function changes for good: put back after the calls that warm a capture up.
        capturable: False where a call has effects outside tensors, such as stepping a real environment: never captured,
            since warming up would repeat them.
        timed: False for a part of another joint, whose time is counted there.

    Attributes:
        mode: off, or what to try at the first call.
        backend: of `torch.compile`.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        device: torch.device,
        *,
        name: str = "joint",
        parts: Sequence[tuple[Any, str]] = (),
        owned: Callable[[], Iterable[Tensor]] = tuple,
        capturable: bool = True,
        timed: bool = True,
    ):
        self.capturable, self.timed = capturable, timed
        self.function, self.device, self.name, self.parts, self.owned = function, device, name, parts, owned
        self.mode: Mode = "off"
        self.backend = "inductor"
        self.compiled = False
        self.first_call_seconds = 0.0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._results: Result | None = None
        self._ready = False
        self._seconds, self._lock = 0.0, threading.Lock()
        self._events: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @property
    def in_force(self) -> str:
        """What really happens at a call: graph, graph of compiled parts, compiled, or eager."""
        if self._graph is not None:
            return "compiled, one CUDA graph" if self.compiled else "one CUDA graph"
        return "compiled" if self.compiled else "eager"

    def __call__(self, *args: Any) -> Result:
        """Call the function and add to its time."""
        if not self._ready:
            return self._first(args)
        if not self.timed:
            return self._run(args)
        if self.device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            result = self._run(args)
            end.record()
            self._events.append((start, end))
            if len(self._events) > UNCOUNTED:
                self._add_up()
            return result
        began = time.perf_counter()
        result = self._run(args)
        with self._lock:
            self._seconds += time.perf_counter() - began
        return result

    def seconds(self) -> float:
        """Seconds spent since this was last asked, by calls that have ended; the first, which may compile, is left out.

        On a GPU calls under way are counted the next time, so that asking does not wait.
        """
        self._add_up()
        with self._lock:
            spent, self._seconds = self._seconds, 0.0
        return spent

    def release(self) -> None:
        """Free the CUDA graph and the compiled functions: the next call takes its form anew.

        A graph holds the communicator that its work between ranks goes through, which cannot be closed before. Compiled
        functions lie on their owner, such as the module, which outlives the run.
        """
        if self._graph is not None:
            torch.cuda.synchronize(self.device)
        if self._graph is not None or self.compiled:
            self._ready, self._inputs = False, []
            self._forget()

    def _add_up(self) -> None:
        """The time of the calls that have ended, in place of their events."""
        with self._lock:
            while self._events and self._events[0][1].query():
                start, end = self._events.popleft()
                self._seconds += start.elapsed_time(end) / 1e3

    def _run(self, args: tuple[Any, ...]) -> Result:
        if self._graph is None:
            return self.function(*args)
        if [tensor.shape for tensor in tensors(args)] != [tensor.shape for tensor in self._inputs]:
            self._capture(args, [(tensor, tensor.clone()) for tensor in self.owned()])
        self._copy_in(args)
        self._graph.replay()
        return cast(Result, self._results)

    def _first(self, args: tuple[Any, ...]) -> Result:
        """Take the fastest form that works on every rank."""
        began = time.perf_counter()
        saved = [(tensor, tensor.clone()) for tensor in self.owned()] if self.mode != "off" else []
        done: list[Result] = []
        for compiled, captured in _attempts(self.mode, bool(self.parts), self.capturable):
            parts, error = self._compile() if compiled else [], None
            try:
                if captured:
                    self._capture(args, saved)
                else:
                    done.append(self.function(*args))
            except Exception as caught:
                error = caught
            error = next((part.error for part in parts if part.error is not None), error)
            if not (complaint := _first_complaint(self._complaint(error))):
                for part in parts:
                    part.settle()
                break
            self._give_up(complaint, captured)
            if not done:
                _put_back(saved, self.owned())
        result = done[0] if done else self._run(args)
        self._ready = True
        self.first_call_seconds = time.perf_counter() - began
        return result

    def _compile(self) -> "list[_Part]":
        mode = "default" if self.mode == "graph" else self.mode
        options = torch._inductor.list_mode_options(mode) | (ON_CPU if self.device.type == "cpu" else {})
        how = {"backend": self.backend} | ({"options": options} if self.backend == "inductor" else {})
        self.compiled = True
        return [_Part(owner, attribute, how) for owner, attribute in self.parts]

    def _capture(self, args: tuple[Any, ...], saved: list[tuple[Tensor, Tensor]]) -> None:
        self._inputs = tensors(args)
        for _ in range(3):
            self.function(*args)
        _put_back(saved, self.owned())
        torch.clear_autocast_cache()  # a weight cast while warming up would be read for ever
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._results = self.function(*args)
        except Exception:
            generator = torch.cuda.default_generators[stream.device_index]
            generator.graphsafe_set_state(generator.clone_state())  # the old state may take itself for captured still
            raise
        torch.clear_autocast_cache()
        self._graph = graph

    def _copy_in(self, args: tuple[Any, ...]) -> None:
        pairs = [(old, new) for old, new in zip(self._inputs, tensors(args), strict=True) if _differ(old, new)]
        for dtype in dict.fromkeys(old.dtype for old, _ in pairs):
            alike = [(old, new) for old, new in pairs if old.dtype == dtype]
            torch._foreach_copy_([old for old, _ in alike], [new for _, new in alike])

    def _complaint(self, error: Exception | None) -> str:
        """What went wrong, in one line; empty if nothing did."""
        if error is None:
            return ""
        root = _root(error)
        log.debug("%s fell back", self.name, exc_info=root)
        return f"{type(root).__name__}: {root}".strip().split("\n")[0]

    def _forget(self) -> None:
        self._graph, self._results, self.compiled = None, None, False
        self.restore_parts()

    def restore_parts(self) -> None:
        """Put the original functions back in the place of compiled ones."""
        for owner, attribute in self.parts:
            owner.__dict__.pop(attribute, None)

    def _give_up(self, complaint: str, captured: bool) -> None:
        self._forget()
        what = "captured as a CUDA graph" if captured else "compiled"
        rank_zero_warn(f"{self.name} cannot be {what} ({complaint}): it goes on without, which costs speed only.")


class _Part:
    """A compiled function in the place of the original, which stands in where it fails, until it has proved itself.

    So a rank on which compiling fails makes the same calls to the others as those on which it does not, and none waits.
    """

    def __init__(self, owner: Any, attribute: str, how: dict[str, Any]):
        self.owner, self.attribute, self.original = owner, attribute, getattr(owner, attribute)
        own = _with_own_code(torch._dynamo.eval_frame.innermost_fn(self.original))
        self.compiled: Any = torch.compile(own, fullgraph=True, dynamic=False, **how)
        self.error: Exception | None = None
        setattr(owner, attribute, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is None:
            try:
                return self.compiled(*args, **kwargs)
            except Exception as error:
                self.error = error
        return self.original(*args, **kwargs)

    def settle(self) -> None:
        """Leave the place to the compiled function."""
        setattr(self.owner, self.attribute, self.compiled)


def _with_own_code(function: Any) -> Any:
    """Copy a function or method so that its code object is its own; other callables are returned unchanged.

    Dynamo keeps compiled graphs, and counts recompilations, per code object. Shared code would let the joints of all
    runs in a process count towards one `torch._dynamo.config.recompile_limit`, and each call test the guards of all.
    The graphs are freed with the copy: Dynamo's map from compiled to original code would keep them.
    """
    if isinstance(function, MethodType):
        return MethodType(_with_own_code(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace()
    own = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    own.__kwdefaults__, own.__qualname__ = function.__kwdefaults__, function.__qualname__
    weakref.finalize(own, torch._C._dynamo.eval_frame.reset_code, code).atexit = False
    return own


def _first_complaint(own: str) -> str:
    """The complaint of the first rank that has one; empty if none has. Every rank calls this together."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return own
    complaints = [own] * distributed.get_world_size()
    distributed.all_gather_object(complaints, own)
    return next(filter(None, complaints), "")


def _attempts(mode: Mode, has_parts: bool, capturable: bool) -> list[tuple[bool, bool]]:
    """(compiled, captured) from the fastest form on; neither is what always works."""
    captured = [(True, True)] * has_parts + [(False, True)] if mode == "graph" and capturable else []
    compiled = [(True, False)] if mode not in ("off", "graph") and has_parts else []
    return [*captured, *compiled]


def _put_back(saved: list[tuple[Tensor, Tensor]], owned: Iterable[Tensor]) -> None:
    """Undo what warming up changed; tensors that it made (an optimizer's state) begin at zero."""
    known = {id(tensor) for tensor, _ in saved}
    with torch.no_grad():
        for tensor, value in saved:
            tensor.copy_(value)
        for tensor in owned:
            if id(tensor) not in known:
                tensor.zero_()


def _root(error: BaseException) -> BaseException:
    """The first of a chain of errors: ending a broken capture raises one of its own."""
    before = error.__cause__ or error.__context__
    return error if before is None else _root(before)


def _differ(old: Tensor, new: Tensor) -> bool:
    return old is not new and old.data_ptr() != new.data_ptr()
