"""Counts what Torch computes, in place of measuring how long it takes."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Operations(TorchDispatchMode):
    """Counts the operators that reach a device, views left out.

    Attributes:
        count: how many.   largest: numbers in the largest tensor that one of them made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count, self.largest = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            given = {id(leaf) for leaf in tree_leaves((args, kwargs))}
            made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and id(leaf) not in given]
            self.count, self.largest = self.count + 1, max([self.largest, *(leaf.numel() for leaf in made)])
        return result
