"""Stored episodes: read from a file of trajectories or a Minari dataset."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import first_line, verify_checksums
from datamodules.core.types import SpaceSpec

MINARI = "minari:"
"""Prefix of the id of a Minari dataset."""

EPISODE_COLUMNS = ("obs", "action", "episode_start", "obs_start")
STEP_COLUMNS = ("reward", "terminated", "truncated")


class Episodes(NamedTuple):
    """Episodes one after the other, N of them with S steps in total.

    obs: `[S + N, *obs]`, with the last observation of each.   action: `[S, ...]`, discrete ones from 0.
    episode_start, obs_start: first step and first observation of each, and the end, int64 `[N + 1]`.
    reward, terminated, truncated: `[S]`; empty if the file has none.
    """

    obs: Tensor
    action: Tensor
    episode_start: Tensor
    obs_start: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


def check_dataset(source: str | Path) -> None:
    """Check that a dataset exists, without reading it.

    Raises: ConfigurationError for a missing file.
    """
    if not str(source).startswith(MINARI) and not Path(source).is_file():
        raise ConfigurationError(
            f"There is no file {source}: write one with `python -m app predict`, or name a Minari dataset, as"
            f" {MINARI}mujoco/pendulum/expert-v0, for data.dataset."
        )


def read_episodes(source: str | Path) -> Episodes:
    """Read the episodes of `FILE.npz`, written by `predict`, or of `minari:ID`, a Minari dataset on this machine.

    Raises: ConfigurationError if the file is damaged or holds no episodes; no code in it is executed.
    """
    check_dataset(source)
    return _from_minari(str(source)) if str(source).startswith(MINARI) else _from_file(Path(source))


def fitted_episodes(source: str, spaces: SpaceSpec) -> Episodes:
    """Read episodes of an environment with these spaces (see `read_episodes`).

    Raises: ConfigurationError also if the spaces differ, or a value is not finite.
    """
    found = read_episodes(source)
    width = () if spaces["action_type"] == "discrete" else (len(spaces["action_low"]) or len(spaces["action_sizes"]),)
    shapes = [tuple(column.shape[1:]) for column in (found.obs, found.action)]
    if shapes != [tuple(spaces["obs_shape"]), width]:
        raise ConfigurationError(
            f"{source} holds observations and actions of shapes {shapes}, and the environment has"
            f" {[tuple(spaces['obs_shape']), width]}: set data.env and data.env_kwargs to those of the recording."
        )
    for name, column in found._asdict().items():
        if column.is_floating_point() and not column.isfinite().all():
            raise ConfigurationError(f"{source} holds {name} that are not finite: remove their episodes.")
    return found


def _from_file(path: Path) -> Episodes:
    """Read a file of NumPy arrays."""
    try:
        verify_checksums(path)
        with np.load(path, allow_pickle=False) as file:
            names = EPISODE_COLUMNS + tuple(name for name in STEP_COLUMNS if name in file)
            columns = {name: torch.from_numpy(file[name]) for name in names}
    except Exception as error:  # a damaged file can make NumPy raise anything
        raise ConfigurationError(
            f"{path} is damaged, or not a file of trajectories ({first_line(error)}): write it again with `predict`, or"
            " set data.dataset to null."
        ) from None
    if problem := inconsistency(columns):
        raise ConfigurationError(f"{path} is not a file of trajectories ({problem}): write it again with `predict`.")
    return Episodes(**{name: columns.get(name, torch.zeros(0)) for name in Episodes._fields})


def inconsistency(columns: dict[str, Tensor]) -> str:
    """Return why columns are not consecutive episodes (see `Episodes`); empty if they are."""
    begin, first = columns["episode_start"], columns["obs_start"]
    if begin.dim() != 1 or begin.shape != first.shape or len(begin) < 2:
        return f"its episode starts have shapes {list(begin.shape)} and {list(first.shape)}"
    if begin.dtype != torch.int64 or first.dtype != torch.int64 or begin[0] != 0 or (begin.diff() < 1).any():
        return "its episode starts are not integers increasing from 0"
    if (first - begin != torch.arange(len(begin))).any():
        return "its episodes do not have one more observation than actions"
    for name, column in columns.items():
        if name.endswith("_start"):
            continue
        end = int((first if name == "obs" else begin)[-1])
        if column.dim() < (2 if name == "obs" else 1) or len(column) != end:
            return f"its {name} is {column.dtype} of shape {list(column.shape)}, for {end} entries"
    return ""


def _from_minari(source: str) -> Episodes:
    """Read a dataset of Minari, from this machine's folder of datasets."""
    name = source.removeprefix(MINARI)
    try:
        import minari  # optional dependency
    except ImportError as error:
        raise ConfigurationError(f"{source} needs Minari: pip install -e '.[offline]'.") from error
    try:
        dataset = minari.load_dataset(name)
        episodes: list[Any] = list(dataset.iterate_episodes())
    except Exception as error:  # missing, damaged, or in a format whose reader is not installed
        raise ConfigurationError(
            f"The Minari dataset {name} cannot be read ({first_line(error)}): download it with"
            f" `minari download {name}`."
        ) from error
    if not episodes or not isinstance(episodes[0].observations, np.ndarray):
        raise ConfigurationError(
            f"The Minari dataset {name} has observations of several parts, or no episodes: choose one whose"
            " observations are one array."
        )
    lengths = torch.tensor([0, *(len(episode.rewards) for episode in episodes)])
    begin = lengths.cumsum(0)
    action = torch.from_numpy(np.concatenate([episode.actions for episode in episodes]))
    action = action - torch.as_tensor(getattr(dataset.spec.action_space, "start", 0))  # of Discrete and its kin
    return Episodes(
        obs=torch.from_numpy(np.concatenate([episode.observations for episode in episodes])),
        action=action,
        episode_start=begin,
        obs_start=begin + torch.arange(len(begin)),
        reward=torch.from_numpy(np.concatenate([episode.rewards for episode in episodes])),
        terminated=torch.from_numpy(np.concatenate([episode.terminations for episode in episodes])),
        truncated=torch.from_numpy(np.concatenate([episode.truncations for episode in episodes])),
    )
