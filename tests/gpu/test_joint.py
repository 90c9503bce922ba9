"""On a GPU: a joint's time is counted without waiting, and what it keeps does not grow."""

import pytest
import torch

from datamodules.core.phase import UNCOUNTED, Joint

pytestmark = pytest.mark.gpu


def test_seconds_count_every_call_that_has_ended() -> None:
    joint, x = Joint(torch.neg, torch.device("cuda")), torch.zeros(2**24, device="cuda")
    joint(x)
    for _ in range(10):
        joint(x)
    torch.cuda.synchronize()

    assert 1e-4 < joint.seconds() < 1
    assert joint.seconds() == 0


def test_a_joint_that_nobody_asks_keeps_few_events() -> None:
    joint, x = Joint(torch.neg, torch.device("cuda")), torch.zeros(2, device="cuda")
    for _ in range(3 * UNCOUNTED):
        joint(x)
        torch.cuda.synchronize()

    assert len(joint._events) <= UNCOUNTED + 1


def test_after_a_capture_that_failed_another_may_draw() -> None:
    x = torch.ones(4, device="cuda")
    looks = Joint(lambda x: x * x.sum().item(), x.device, name="looks")
    draws = Joint(lambda x: x + torch.rand_like(x), x.device, name="draws")
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
    assert draws.in_force == "one CUDA graph"


def test_a_released_joint_captures_anew() -> None:
    kept = torch.zeros(4, device="cuda")
    joint = Joint(kept.add_, kept.device, name="adds", owned=lambda: [kept])
    joint.mode = "graph"
    torch.cuda.synchronize()

    with torch.cuda.stream(torch.cuda.Stream()):
        joint(torch.ones(4, device="cuda"))
        joint.release()
        assert joint.in_force == "eager"
        joint(torch.ones(4, device="cuda"))
        torch.cuda.synchronize()

    assert joint.in_force == "one CUDA graph" and kept.tolist() == [2.0] * 4
