"""Names of the replay files beside `last.ckpt`, detection of superseded ones, and loading."""

import re
from pathlib import Path
from typing import Any

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import load_tensors

NAME = re.compile(r"last\.replay-(\d+)-[0-9a-f]{14}-\d+\.pt")
"""`last.replay-RANK-IDENTITY-STEPS.pt`."""


def replay_name(rank: int, identity: list[int]) -> str:
    """Return the file name of a rank's replay buffer, unique for every state of every buffer."""
    number, steps = identity
    return f"last.replay-{rank}-{number:014x}-{steps}.pt"


def superseded(folder: Path, rank: int, ranks: int, identity: list[int]) -> list[Path]:
    """List the files of a rank's earlier replay buffers in a folder; on rank 0 also those of removed ranks.

    Args:
        ranks: number of ranks of the run.
        identity: identity of the buffer that the folder's checkpoint belongs to; its file is kept.
    """
    named = {path: int(match[1]) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))}
    own = [path for path, owner in named.items() if owner == rank or (rank == 0 and owner >= ranks)]
    return [path for path in own if path.name != replay_name(rank, identity)]


def read_replay(path: Path, identity: list[int]) -> dict[str, Any] | None:
    """Map a replay file into memory; return None if it is missing or belongs to another checkpoint.

    Raises: ConfigurationError if the file is damaged.
    """
    if not path.is_file():
        return None
    cure = "remove it to resume with an empty replay buffer, or resume from another checkpoint"
    state = load_tensors(path, cure=cure, mmap=True)
    parts = {"identity": list, "env_steps": int, "ring": dict, "priorities": dict | None}
    if not isinstance(state, dict) or not all(isinstance(state.get(name), kind) for name, kind in parts.items()):
        raise ConfigurationError(f"{path} is not a replay file of Leyden: {cure}.")
    return state if state["identity"] == identity else None
