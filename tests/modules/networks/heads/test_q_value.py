import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from modules.networks.heads.q_value import C51Head, QHead, QNetwork, QuantileHead, RescaledQHead
from modules.networks.mlp import MLP

HEADS = [QHead, C51Head, QuantileHead, RescaledQHead]
every_head = pytest.mark.parametrize("kind", HEADS)


def test_dueling_adds_the_advantage_less_its_mean_to_the_value() -> None:
    head = QHead(1, 3, dueling=True)
    with torch.no_grad():
        head.linear.bias.copy_(torch.tensor([2.0, 1.0, 2.0, 6.0]))
    assert_close(head.mean(head(torch.zeros(1, 1))), torch.tensor([[0.0, 1.0, 5.0]]))


@every_head
@pytest.mark.parametrize("dueling", [False, True])
def test_a_head_says_numbers_of_every_action_and_their_mean(kind: type[QHead], dueling: bool) -> None:
    head = kind(8, 4, dueling=dueling)
    numbers = head(torch.randn(5, 8))
    assert numbers.shape == (5, 4, head.numbers)
    assert head.mean(numbers).shape == (5, 4)


@every_head
def test_the_target_of_a_terminated_window_is_its_return(kind: type[QHead]) -> None:
    head = kind(8, 4)
    following = torch.randn(6, head.numbers)
    target = head.target(following, torch.linspace(-1, 1, 6), torch.zeros(6))
    mean = target @ head.support if isinstance(head, C51Head) else head.mean(target)
    assert_close(mean, torch.linspace(-1, 1, 6))


@every_head
def test_a_head_learns_the_value_it_is_told(kind: type[QHead]) -> None:
    torch.manual_seed(0)
    network = QNetwork(MLP((2,), hidden=(32,)), kind(32, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    obs, return_ = torch.eye(2), torch.tensor([1.0, -2.0])
    for _ in range(300):
        numbers = network(obs)[:, 0]
        target = network.head.target(numbers.detach(), return_, torch.zeros(2))
        optimizer.zero_grad()
        network.head.loss(numbers, target)[0].mean().backward()
        optimizer.step()
    assert_close(network.head.mean(network(obs))[:, 0].detach(), return_, rtol=0, atol=0.1)


@every_head
def test_the_error_has_no_gradient_and_vanishes_at_the_target(kind: type[QHead]) -> None:
    head = kind(8, 4)
    numbers: Tensor = head(torch.randn(5, 8))[:, 0]
    perfect = numbers.softmax(-1) if kind is C51Head else numbers
    loss, error = head.loss(numbers, perfect.detach())
    assert loss.shape == error.shape == (5,)
    assert not error.requires_grad
    assert error.abs().max() < 1e-5


def test_values_stay_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert QHead(8, 4)(torch.randn(5, 8, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("bad", [{"low": 1.0, "high": 1.0}, {"atoms": 1}])
def test_a_support_that_is_none_is_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="give low < high and 2 atoms or more"):
        C51Head(8, 4, **bad)
