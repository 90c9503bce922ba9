"""Files that hold a replay beside `last.ckpt`: their names, which of them are superseded, and reading them."""

import re
from pathlib import Path
from typing import Any

from datamodules.core.errors import UsageError
from datamodules.core.files.tensor_files import load_tensors

NAME = re.compile(r"last\.replay-(\d+)-[0-9a-f]{14}-\d+\.pt")
"""`last.replay-RANK-IDENTITY-STEPS.pt`."""


def replay_name(rank: int, identity: list[int]) -> str:
    """Return the name of the file of a rank's replay: another one for every state of every replay."""
    number, steps = identity
    return f"last.replay-{rank}-{number:014x}-{steps}.pt"


def superseded(folder: Path, rank: int, ranks: int, identity: list[int]) -> list[Path]:
    """List the files of a rank's earlier replays in a folder; rank 0 also lists those of ranks that are no more.

    Args:
        ranks: of the run.
        identity: of the replay that the checkpoint in the folder belongs to; its file stays.
    """
    named = {path: int(match[1]) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))}
    own = [path for path, owner in named.items() if owner == rank or (rank == 0 and owner >= ranks)]
    return [path for path in own if path.name != replay_name(rank, identity)]


def read_replay(path: Path, identity: list[int]) -> dict[str, Any] | None:
    """Map the replay of a file into memory; None where there is no file, or another replay in it.

    Raises: UsageError if the file is damaged.
    """
    if not path.is_file():
        return None
    cure = "remove it to resume with an empty replay, or resume from another checkpoint"
    state = load_tensors(path, cure=cure, mmap=True)
    parts = {"identity": list, "env_steps": int, "ring": dict, "priorities": dict | None}
    if not isinstance(state, dict) or not all(isinstance(state.get(name), kind) for name, kind in parts.items()):
        raise UsageError(f"{path} holds no replay of this program: {cure}.")
    return state if state["identity"] == identity else None
