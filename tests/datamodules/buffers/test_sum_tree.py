import pytest
import torch

from datamodules.buffers.sum_tree import SumTree, importance_weights
from tests.support.operation_count import Operations

CPU = torch.device("cpu")


def priorities(errors: list[float], alpha: float = 1.0, entries: int | None = None) -> SumTree:
    tree = SumTree(entries or len(errors), alpha, CPU)
    tree.update_(torch.arange(len(errors)), torch.tensor(errors, dtype=torch.float64))
    return tree


def test_probabilities_and_weights_are_those_of_the_paper():
    tree = priorities([1, 2, 3, 4], alpha=0.6)
    _, probability = tree.sample_at(torch.tensor([0.1, 0.3, 0.5, 0.9], dtype=torch.float64))
    weight = importance_weights(probability, torch.tensor(0.4))
    expected = torch.tensor([0.148230, 0.224674, 0.286555, 0.340542], dtype=torch.float64)
    assert torch.allclose(probability, expected, atol=2e-6)
    expected = torch.tensor([1, 0.846745, 0.768229, 0.716978], dtype=torch.float64)
    assert torch.allclose(weight, expected, atol=2e-6)


@pytest.mark.parametrize("entries", [10, 64, 65, 5000, 300_000])
def test_an_entry_is_found_where_the_cumulative_sum_says(entries: int):
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(entries, dtype=torch.float64, generator=generator)
    weight[torch.rand(entries, generator=generator) < 0.5] = 0
    tree = SumTree(entries, 1.0, CPU)
    tree.set_(torch.arange(entries), weight)
    share = torch.rand(1000, dtype=torch.float64, generator=generator)
    expected = torch.searchsorted(weight.cumsum(0), share * weight.sum(), right=True)
    found, probability = tree.sample_at(share)
    assert torch.equal(found, expected)
    assert torch.allclose(probability, weight[found] / weight.sum())


def test_entries_of_weight_zero_are_never_found_not_even_at_the_edges():
    tree = priorities([1.0, 2.0, 0.5], entries=5000)
    tree.set_(torch.tensor([1]), torch.zeros(1, dtype=torch.float64))
    share = torch.tensor([0, 0.5, 2 / 3, 1 - 2**-53], dtype=torch.float64)
    assert set(tree.sample_at(share)[0].tolist()) <= {0, 2}


def test_an_entry_drawn_twice_takes_the_larger_error():
    tree = priorities([1, 1, 1])
    tree.update_(torch.tensor([0, 2, 0]), torch.tensor([5.0, 4.0, 3.0]))
    assert torch.allclose(tree.levels[0][:3], torch.tensor([5, 1, 4.0], dtype=torch.float64), atol=1e-5)
    assert torch.allclose(tree.levels[-1].sum(), torch.tensor(10.0, dtype=torch.float64), atol=1e-5)


def test_the_maximum_is_what_new_entries_get():
    tree = priorities([0.5, 0.25])
    assert tree.maximum == 1
    tree.update_(torch.tensor([1]), torch.tensor([3.0]))
    assert torch.allclose(tree.maximum, torch.tensor(3.0, dtype=torch.float64), atol=1e-5)


def test_stratified_draws_take_one_from_every_part():
    found, _ = priorities([1.0] * 8).sample_stratified(torch.rand(5, 8, dtype=torch.float64))
    assert found.tolist() == [list(range(8))] * 5


def test_state_dict_continues_exactly():
    tree, other = priorities([1, 2, 3], entries=5000), SumTree(5000, 1.0, CPU)
    other.load_state_dict(tree.state_dict())
    assert all(torch.equal(one, two) for one, two in zip(tree.levels, other.levels, strict=True))


def test_drawing_256_of_a_million_and_weighing_them_takes_few_operations_on_few_numbers():
    noise, counted = torch.rand(1, 256, dtype=torch.float64), []
    for entries in (5_000, 1_000_000):
        tree = SumTree(entries, 0.6, CPU)
        tree.set_(torch.arange(entries), torch.rand(entries, dtype=torch.float64))
        with Operations() as operations:
            found, _ = tree.sample_stratified(noise)
            tree.update_(found.flatten(), noise.flatten())
        counted.append(operations)
    least, most = counted
    assert most.largest == least.largest == 256 * 64
    assert most.count <= 2 * least.count < 200
