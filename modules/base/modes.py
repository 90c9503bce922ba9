"""Train and eval mode: networks act, evaluate and give targets in eval mode, and learn in train mode."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


class Modes:
    """Switches the networks of a module between eval mode and train mode, without walking through them each time.

    The module's own flag stays as it is; Lightning sets it.

    Args:
        module: what holds the networks.
        always_eval: parts of it that stay in eval mode, such as target networks.

    Attributes:
        learning: parts that learn in train mode. Left out is what was in eval mode before a fit began, such as a
            BatchNorm that was frozen, and what a `train` of the user's own keeps in eval mode.
    """

    def __init__(self, module: nn.Module, always_eval: Iterable[nn.Module] = ()):
        self.module = module
        self.fixed = {part for each in always_eval for part in each.modules()}
        self.learning: list[nn.Module] = []

    def begin(self) -> None:
        """Put the parts that learn in train mode, also those that an earlier fit left in eval mode."""
        for part in self.learning:
            part.training = True

    def eval_(self) -> None:
        """Put all networks in eval mode, and remember which of them learn."""
        frozen = self.fixed | {part for part in self.module.modules() if not part.training}
        for child in self.module.children():
            child.train()
        parts = [part for part in self.module.modules() if part is not self.module]
        self.learning = [part for part in parts if part.training and part not in frozen]
        for child in self.module.children():
            child.eval()

    @contextmanager
    def train(self) -> Iterator[None]:
        """Put the parts that learn in train mode meanwhile."""
        self._set(True)
        try:
            yield
        finally:
            self._set(False)

    def _set(self, training: bool) -> None:
        for part in self.learning:
            vars(part)["training"] = training  # a twentieth of the time of nn.Module's own way to set an attribute
