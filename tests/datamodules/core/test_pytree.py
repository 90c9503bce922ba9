import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import copy_tree_, join_parts, name_parts, tree_leaves, tree_map, tree_unbind
from datamodules.core.types import PolicyInput, require_tensor

PARTS = {"b": torch.arange(6).view(3, 2), "a": torch.arange(3.0)}


def test_a_function_of_several_trees_gets_the_tensors_at_the_same_place():
    inputs = PolicyInput(PARTS, {"h": torch.ones(3)}, torch.zeros(3, dtype=torch.bool))
    summed = tree_map(torch.add, inputs, inputs)
    assert isinstance(summed, PolicyInput) and summed.action_mask is None
    assert torch.equal(summed.obs["b"], 2 * PARTS["b"]) and summed.obs["a"].tolist() == [0, 2, 4]
    assert torch.equal(tree_map(torch.add, PARTS["a"], PARTS["a"]), 2 * PARTS["a"])


def test_parts_are_named_among_columns_and_found_again():
    named = name_parts("obs", PARTS)
    assert list(named) == ["obs/b", "obs/a"]
    joined = join_parts("obs", {"reward": torch.zeros(3), **named})
    assert isinstance(joined, dict) and list(joined) == ["b", "a"] and joined["a"] is PARTS["a"]
    assert name_parts("obs", PARTS["a"]) == {"obs": PARTS["a"]} and join_parts("obs", {"obs": PARTS["a"]}) is PARTS["a"]


def test_slices_and_copies_keep_the_parts_apart():
    rows = tree_unbind(PARTS)
    assert [float(row["a"]) for row in rows] == [0, 1, 2] and rows[2]["b"].tolist() == [4, 5]
    assert [float(row) for row in tree_unbind(PARTS["a"])] == [0, 1, 2]
    target = tree_map(torch.zeros_like, PARTS)
    copy_tree_(target, PARTS)
    assert all(map(torch.equal, tree_leaves(target), tree_leaves(PARTS)))


def test_what_needs_one_tensor_refuses_parts_by_name():
    assert require_tensor(PARTS["a"]) is PARTS["a"]
    with pytest.raises(ConfigurationError, match=r"have the parts b, a, .*FlattenObservation"):
        require_tensor(PARTS)
