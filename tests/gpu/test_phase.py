"""On a GPU: a phase's time is counted without waiting, and what it keeps does not grow."""

import pytest
import torch

from datamodules.core.phase import MAX_PENDING_EVENTS, Phase

pytestmark = pytest.mark.gpu


def test_seconds_count_every_call_that_has_ended() -> None:
    phase, x = Phase(torch.neg, torch.device("cuda")), torch.zeros(2**24, device="cuda")
    phase(x)
    for _ in range(10):
        phase(x)
    torch.cuda.synchronize()

    assert 1e-4 < phase.pop_seconds() < 1
    assert phase.pop_seconds() == 0


def test_a_phase_whose_seconds_are_not_read_keeps_few_events() -> None:
    phase, x = Phase(torch.neg, torch.device("cuda")), torch.zeros(2, device="cuda")
    for _ in range(3 * MAX_PENDING_EVENTS):
        phase(x)
        torch.cuda.synchronize()

    assert len(phase._events) <= MAX_PENDING_EVENTS + 1


def test_after_a_capture_that_failed_another_may_draw() -> None:
    x = torch.ones(4, device="cuda")
    looks = Phase(lambda x: x * x.sum().item(), x.device, name="looks")
    draws = Phase(lambda x: x + torch.rand_like(x), x.device, name="draws")
    looks.mode = draws.mode = "graph"
    torch.manual_seed(7)
    expected = torch.rand(4, device="cuda")
    torch.manual_seed(7)

    torch.cuda.synchronize()

    with torch.cuda.stream(torch.cuda.Stream()):
        with pytest.warns(UserWarning, match="looks cannot be captured as a CUDA graph"):
            assert torch.equal(looks(x), 4 * x)
        assert torch.equal(torch.rand(4, device="cuda"), expected)
        first, second = draws(x).clone(), draws(x).clone()
        assert not torch.equal(first, second)
    assert draws.execution_mode == "one CUDA graph"


def test_a_released_phase_captures_anew() -> None:
    kept = torch.zeros(4, device="cuda")
    phase = Phase(kept.add_, kept.device, name="adds", mutated_tensors=lambda: [kept])
    phase.mode = "graph"
    torch.cuda.synchronize()

    with torch.cuda.stream(torch.cuda.Stream()):
        phase(torch.ones(4, device="cuda"))
        phase.release_graph()
        assert phase.execution_mode == "eager"
        phase(torch.ones(4, device="cuda"))
        torch.cuda.synchronize()

    assert phase.execution_mode == "one CUDA graph" and kept.tolist() == [2.0] * 4
