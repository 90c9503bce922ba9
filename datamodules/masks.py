"""Masks: what an environment allows at the next step, under names that end in `_mask`."""

from torch import Tensor

from datamodules.types import State


def masks_of(info: dict[str, Tensor]) -> dict[str, Tensor]:
    """The masks among what an environment reports."""
    return {name: value for name, value in info.items() if name.endswith("_mask")}


def informed(actor: State, masks: State) -> State:
    """The actor's state before a decision: a leaf with the name of a mask holds the environment's mask."""
    return {name: masks.get(name, leaf) for name, leaf in actor.items()}
