"""load: make an agent from a checkpoint alone."""

from pathlib import Path

from app.agent.agent import Agent
from datamodules.core.files.run_checkpoints import checkpoint_in, load_checkpoint
from modules.base.hparams import algorithm_class, check_importable


def load(
    path: str | Path, trusted: tuple[str, ...] = (), seed: int | None = None, max_batch_size: int | None = None
) -> Agent:
    """Load a trained agent on the CPU, in eval mode; nothing in the file is executed.

    Class, spaces, settings and weights are in the checkpoint: no config is needed.

    Args:
        path: a checkpoint, a run folder (its best checkpoint, else its last) or an experiment's folder (its newest
            run).
        trusted: packages of yours that the checkpoint may import, such as that of your own network.
        seed: seed of sampled actions; None draws one.
        max_batch_size: most rows of one call of the policy; larger batches of observations are split. None: no limit.

    Raises:
        ConfigurationError: if there is no such checkpoint, it is damaged, or it names code that is not trusted.
    """
    checkpoint = checkpoint_in(path)
    hparams = load_checkpoint(checkpoint).get("hyper_parameters", {})
    check_importable(hparams, trusted)
    module = algorithm_class(hparams, checkpoint).load_from_checkpoint(checkpoint, trusted=trusted, map_location="cpu")
    return Agent(module, checkpoint, seed, max_batch_size)
