"""On a GPU: a joint's time is counted without waiting, and what it keeps does not grow."""

import pytest
import torch

from datamodules.joint import UNCOUNTED, Joint

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
