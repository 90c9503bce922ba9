"""What a phase does where it cannot take the form that was asked for."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from datamodules.core.phase import Phase
from tests.support.two_ranks import TwoRanks


class Work:
    """Two compiled parts, each followed by a sum over the ranks; the second may look at a value.

    With the backend eager Dynamo traces and guards as always, and nothing is generated.
    """

    def __init__(self, looks: bool, backend: str = "inductor"):
        self.looks, self.calls = looks, 0
        self.phase = Phase(
            self.run, torch.device("cpu"), name="work", compile_targets=[(self, "double"), (self, "increment")]
        )
        self.phase.mode, self.phase.backend = "default", backend

    def double(self, x: Tensor) -> Tensor:
        return 2 * x

    def increment(self, x: Tensor) -> Tensor:
        return x + 1 if not self.looks or x.sum().item() > 0 else x

    def run(self, x: Tensor) -> Tensor:
        self.calls += 1
        return summed(self.increment(summed(self.double(x))))


def summed(x: Tensor) -> Tensor:
    if distributed.is_initialized():
        distributed.all_reduce(x)
    return x


def test_what_can_be_compiled_is_compiled() -> None:
    work = Work(looks=False)

    results = [work.phase(torch.ones(3)) for _ in range(2)]

    assert work.phase.execution_mode == "compiled" and {"double", "increment"} <= set(vars(work))
    torch.testing.assert_close(results, [torch.full((3,), 3.0)] * 2)


def test_phases_beyond_the_recompile_limit_are_compiled_too() -> None:
    torch._dynamo.reset()
    number = torch._dynamo.config.recompile_limit + 3

    works = [Work(looks=False, backend="eager") for _ in range(number)]
    results = [work.phase(torch.ones(1 + size)) for size, work in enumerate(works)]

    assert [work.phase.execution_mode for work in works] == ["compiled"] * number
    assert [len(result) for result in results] == list(range(1, number + 1))


def test_a_joint_made_anew_for_the_same_owner_compiles_the_original() -> None:
    work = Work(looks=False, backend="eager")

    for size in range(1, torch._dynamo.config.recompile_limit + 4):
        work.phase = Phase(work.run, torch.device("cpu"), compile_targets=[(work, "double"), (work, "increment")])
        work.phase.mode, work.phase.backend = "default", "eager"
        assert torch.equal(work.phase(torch.ones(size)), torch.full((size,), 3.0))

        assert work.phase.execution_mode == "compiled"


def test_compiled_code_is_freed_with_its_joint() -> None:
    work = Work(looks=False, backend="eager")
    work.phase(torch.ones(3))
    code = weakref.ref(work.double._torchdynamo_orig_callable.__func__.__code__)

    del work
    gc.collect()

    assert code() is None


def test_a_released_joint_leaves_no_compiled_function_and_compiles_anew_when_called() -> None:
    work = Work(looks=False, backend="eager")
    work.phase(torch.ones(3))
    code = weakref.ref(work.double._torchdynamo_orig_callable.__func__.__code__)  # type: ignore[attr-defined]

    work.phase.release_graph()
    gc.collect()

    assert code() is None and not {"double", "increment"} & set(vars(work))
    assert work.phase.execution_mode == "eager" and torch.equal(work.phase(torch.ones(3)), torch.full((3,), 3.0))
    assert work.phase.execution_mode == "compiled"


def test_a_part_that_cannot_be_compiled_costs_no_second_call() -> None:
    work = Work(looks=True)

    with pytest.warns(UserWarning, match=r"work cannot be compiled \(.*the run continues without it"):
        result = work.phase(torch.ones(3))

    assert torch.equal(result, torch.full((3,), 3.0))
    assert (work.calls, work.phase.execution_mode) == (1, "eager")
    assert not {"double", "increment"} & set(vars(work))


def test_an_error_of_the_function_itself_is_raised() -> None:
    phase = Phase(torch.linalg.cholesky, torch.device("cpu"), compile_targets=[(Work(looks=False), "double")])
    phase.mode = "default"

    with pytest.warns(UserWarning, match="cannot be compiled"), pytest.raises(torch.linalg.LinAlgError):
        phase(-torch.eye(2))


def work_on_rank(folder: Path) -> None:
    """Rank 1's second part cannot be compiled."""
    rank = distributed.get_rank()
    work = Work(looks=rank == 1, backend="aot_eager")
    results = [work.phase(torch.ones(3)).tolist() for _ in range(2)]
    torch.save((work.phase.execution_mode, work.calls, results), folder / f"{rank}.pt")


def test_what_one_rank_cannot_compile_no_rank_compiles(ranks: TwoRanks, tmp_path: Path) -> None:
    ranks.run(work_on_rank, tmp_path)

    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first == second == ("eager", 2, [[10.0] * 3] * 2)
