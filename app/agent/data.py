"""load_data: make the data module of a checkpoint again, to play its environment."""

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from lightning.pytorch.cli import instantiate_module

from app.cli.error_messages import DENIED
from app.cli.import_policy import restrict_imports, trust_advice, untrusted_environments, why_untrustworthy
from app.cli.main import cause
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.run_checkpoints import load_checkpoint


def load_data(checkpoint: Path, trusted: tuple[str, ...] = ()) -> EnvDataModule:
    """Make the data module that a checkpoint was trained with; its environments are created when they are used.

    Args:
        trusted: packages of yours that the checkpoint may import, such as that of your environment.

    Raises:
        ConfigurationError: if the checkpoint holds none, its environment cannot be created, or code is not trusted.
    """
    hparams: dict[str, Any] = load_checkpoint(checkpoint).get("datamodule_hyper_parameters") or {}
    if "env" not in hparams and "symbol" not in hparams:
        raise ConfigurationError(f"{checkpoint} does not say which data it was trained with: train it again.")
    restrict_imports(trusted)
    for env in untrusted_environments(hparams, trusted):
        raise ConfigurationError(trust_advice(env))
    arguments = {key: hparams[key] for key in hparams if key != "_instantiator"}
    try:
        data = instantiate_module(LightningDataModule, arguments)
    except Exception as error:
        reason = cause(error)
        said = str(reason) if isinstance(reason, ConfigurationError) else " ".join(str(reason).split())
        if denied := DENIED.search(said):
            top = denied[1].partition(".")[0]
            said = f"{denied[1]} may not be imported: if you trust that code, add `--trust {top}`."
            if why_untrustworthy(top):
                said = f"{denied[1]} is refused: a checkpoint may not use this part of `{top}`."
        raise ConfigurationError(f"The environment of {checkpoint} cannot be used: {said}") from error
    if not isinstance(data, EnvDataModule):
        raise ConfigurationError(f"{checkpoint} was trained with {type(data).__name__}, which has no environment.")
    return data
