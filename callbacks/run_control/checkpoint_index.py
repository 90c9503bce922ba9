"""Write the index of a checkpoint (`datamodules.core.files.checkpoint_index`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callbacks.run_control.atomic_write import atomic_write
from datamodules.core.files.checkpoint_index import entry_of, index_path, read_index, sha256


def write_index(checkpoint: Mapping[str, Any], written: Path, path: Path) -> None:
    """Write the index of the file `written`, which holds `checkpoint` and is about to become `path`.

    The entry of the current file at `path` is kept, however many saves were interrupted since.
    """
    current = sha256(path) if path.is_file() else None
    current_entries = [entry for entry in read_index(path) if entry.sha256 == current]
    entries = [entry_of(checkpoint, path, sha256(written)), *current_entries[:1]]
    text = json.dumps([entry._asdict() for entry in entries], indent=1)
    with atomic_write(index_path(path)) as file:
        file.write(text.encode() + b"\n")
