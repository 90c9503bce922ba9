"""Data modules, the environments and buffers they use, and the types shared with algorithms.

`core` holds the shared types and protocols. `vector.make_env` wraps any environment into a vector environment with
tensors: `gymnasium_adapter` on the host, `func_vector_env` on the device, `async_vector_env` and `worker_pool` in
processes, `envpool_adapter` for EnvPool. No module depends on an algorithm: a policy is an argument.

To add an environment, write one file in `envs/`. To add a data module, write one file in this folder with a dataset
that collects in `__iter__` and a `LightningDataModule` that creates its environments, and add its name to `EXPORTS`.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "RolloutDataModule": "datamodules.rollout",
    "ReplayDataModule": "datamodules.replay",
    "SequenceDataModule": "datamodules.sequence",
    "OfflineSequenceDataModule": "datamodules.offline",
    "OfflineReplayDataModule": "datamodules.offline_replay",
    "TradingDataModule": "datamodules.trading.datamodule",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from datamodules.offline import OfflineSequenceDataModule as OfflineSequenceDataModule
    from datamodules.offline_replay import OfflineReplayDataModule as OfflineReplayDataModule
    from datamodules.replay import ReplayDataModule as ReplayDataModule
    from datamodules.rollout import RolloutDataModule as RolloutDataModule
    from datamodules.sequence import SequenceDataModule as SequenceDataModule
    from datamodules.trading.datamodule import TradingDataModule as TradingDataModule
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
