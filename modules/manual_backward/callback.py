"""Replace methods of an algorithm by versions without autograd during a fit."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, Trainer

from modules.base.algorithm import Algorithm
from modules.dqn.dqn import DQN
from modules.manual_backward import dqn, ppo, sac
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC

REGISTRY: dict[type[Algorithm], tuple[Callable[[Any], bool], Callable[[Any], dict[str, Callable[..., Any]]]]] = {
    DQN: (dqn.supports, dqn.methods),
    PPO: (ppo.supports, ppo.methods),
    SAC: (sac.supports, sac.methods),
}
"""Whether a model is supported, and the methods to replace, by its exact type, as a subclass may compute otherwise."""


class ManualBackward(Callback):
    """Replaces methods of PPO, DQN and SAC by hand-written passes without autograd, for float32 MLPs on a CPU.

    Results are equal to the last bit for DQN and SAC, and up to the order of summation (1e-7) for PPO. Unsupported
    models keep their methods, as do networks with hooks: list this callback after those that register hooks. The
    program adds it to every `fit`; a Trainer made in Python needs it in its callbacks.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Install before the module creates its phases."""
        install(pl_module)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Install again, since hooks may have been registered meanwhile; compile nothing of the update."""
        if not pl_module.replaced_methods:
            return
        install(pl_module)
        if pl_module.replaced_methods:
            pl_module.phases["update"].compile_targets = ()
        else:
            trainer.datamodule.collector.policy.restore_methods_()  # a copy with policy lag

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Restore the algorithm's own methods."""
        pl_module.restore_methods_()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Restore the algorithm's own methods."""
        pl_module.restore_methods_()


def install(model: Algorithm) -> None:
    """Replace methods of a supported model; restore those of others."""
    model.restore_methods_()
    supports, methods = REGISTRY.get(type(model), (None, None))
    if supports is not None and methods is not None and supports(model):
        model.replace_methods_(methods(model))
