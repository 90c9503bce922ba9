"""Index of a checkpoint: a small JSON file beside it, read to choose among checkpoints without loading them.

`last.ckpt.json` holds a list of entries, the newest first. It is written before the checkpoint replaces its
predecessor, and keeps the predecessor's entry: a kill in between leaves an entry for either file.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.core.errors import ConfigurationError


class IndexEntry(NamedTuple):
    """Entry for one version of a checkpoint.

    score: monitored value, None if there is none.   monitor, mode: tag of the value, and max or min.
    best: path of the best checkpoint at that time.   environment: `env`, `env_kwargs` and `wrappers`, if there are any;
        None if unknown.
    """

    sha256: str
    iteration: int
    env_steps: int
    score: float | None
    monitor: str | None
    mode: str
    best: str
    environment: Any


def index_path(checkpoint: Path) -> Path:
    """Return the path of a checkpoint's index."""
    return checkpoint.with_name(checkpoint.name + ".json")


def read_index(path: Path) -> list[IndexEntry]:
    """Return the entries of a checkpoint's index, newest first; empty if there is no index or it cannot be read."""
    try:
        return [IndexEntry(**entry) for entry in json.loads(index_path(path).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def verify_index(path: Path) -> None:
    """Compare a checkpoint with its index, if it has one.

    Raises:
        ConfigurationError: if the index has no entry for the file.
    """
    entries = read_index(path)
    if entries and path.is_file() and sha256(path) not in [entry.sha256 for entry in entries]:
        raise ConfigurationError(
            f"{path} is damaged: its SHA-256 is not the one in {index_path(path).name}. If you replaced the file"
            " yourself, remove that index."
        )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entry_of(checkpoint: Mapping[str, Any], path: Path, digest: str) -> IndexEntry:
    """Return the entry of a checkpoint's content, as returned by `torch.load`."""
    states = [(str(key), state) for key, state in checkpoint.get("callbacks", {}).items() if "best_model_path" in state]
    key, state = next(((k, s) for k, s in states if str(path) in s.get("best_k_models", {})), (states or [("", {})])[0])
    score = state.get("best_k_models", {}).get(str(path), state.get("current_score"))
    data = checkpoint.get("datamodule_hyper_parameters") or {}
    return IndexEntry(
        sha256=digest,
        iteration=int(checkpoint.get("global_step", 0)),
        env_steps=int(checkpoint.get("counters", {}).get("env_steps", 0)),
        score=None if score is None or not math.isfinite(score) else float(score),
        monitor=state.get("monitor"),
        mode="min" if "'mode': 'min'" in key else "max",
        best=str(state.get("best_model_path", "")),
        environment=environment_of(data) if "env" in data else None,
    )


def environment_of(data: Mapping[str, Any]) -> Any:
    """Return the environment's identity in the settings of the data, after a JSON round trip."""
    settings = {key: value for key, value in (data.get("env_kwargs") or {}).items() if key != "render_mode"}
    parts = [data.get("env"), settings, *filter(None, [data.get("wrappers")])]
    return json.loads(json.dumps(parts, default=_plain, sort_keys=True))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
