"""Files with random damage: each is refused in one sentence that names it, or read as what it was."""

import gzip
import io
import random
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from app.__main__ import main
from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.trajectory_writer import write_trajectories
from datamodules.buffers.replay_files import read_replay
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.run_checkpoints import load_checkpoint
from datamodules.offline import read_sequences
from datamodules.trading.prices.price_files import read_prices
from datamodules.trading.prices.synthetic import synthetic_prices
from tests.datamodules.test_replay import StopAt
from tests.fault import print_count
from tests.support.price_fixtures import write_prices
from tests.support.replay_fixtures import fitted_dqn, replay_data

FILES = 600


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Change a file as disks, transfers and editors do."""
    place, length = draw.randrange(len(content)), draw.randint(1, 64)
    before, after = content[:place], content[place + length :]
    kinds: list[Callable[[], bytes]] = [
        lambda: before,
        lambda: before + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :],
        lambda: before + draw.randbytes(length) + after,
        lambda: before + bytes(length) + after,
        lambda: before + after,
        lambda: before + draw.randbytes(length) + content[place:],
        lambda: content[place : place + length] + content,
        lambda: content + draw.randbytes(length),
    ]
    return draw.choice(kinds)()


def same(one: Any, other: Any) -> bool:
    """Whether two contents are equal, tensors included."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def outcomes(path: Path, read: Callable[[Path], Any], unchanged: Callable[[Any, Any], bool]) -> dict[str, int]:
    """Damage a file many times; how often it was refused, read as it was, read as something else, or not survived."""
    content, draw, counts = path.read_bytes(), random.Random("".join(path.suffixes)), dict.fromkeys(OUTCOMES, 0)
    whole = read(path)
    bad = path.with_name(f"bad-{path.name}")
    for _ in range(FILES):
        bad.write_bytes(damaged(content, draw))
        try:
            counts["unchanged" if unchanged(whole, read(bad)) else "changed"] += 1
        except ConfigurationError as error:
            one_sentence = str(bad) in str(error) and "\n" not in str(error)
            counts["refused" if one_sentence else "unclear"] += 1
        except Exception:
            counts["traceback"] += 1
    return counts


OUTCOMES = ("refused", "unchanged", "changed", "unclear", "traceback")


def read_config(path: Path) -> Any:
    """Let the program read a config, in this process; the exit code 2 and its sentence become a ConfigurationError."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()), redirect_stderr(said):
        patch.setattr(sys, "argv", ["app", "fit", "--config", str(path), "--print_config"])
        try:
            main()
        except SystemExit as end:
            if end.code == 2:
                raise ConfigurationError(f"{path}: {said.getvalue().strip()}") from None
            assert not end.code
    return yaml.safe_load(path.read_text(encoding="utf-8-sig"))


def run_files(folder: Path) -> tuple[Path, Path]:
    """Train a little; `last.ckpt` and its replay."""
    fitted_dqn(folder, replay_data(), StopAt(5), RunCheckpoint())
    (last,) = folder.rglob("last.ckpt")
    return last, next(last.parent.glob("last.replay-*.pt"))


def trajectories(folder: Path) -> Path:
    flags = {name: torch.zeros(20) for name in ("reward", "terminated", "truncated")}
    episode = {"obs": torch.randn(21, 3), "action": torch.randn(20, 2), **flags}
    write_trajectories(folder / "trajectories.npz", [episode] * 5)
    return folder / "trajectories.npz"


def prices(folder: Path, compressed: bool) -> Path:
    path = write_prices(folder / "A.csv", synthetic_prices("WALK", bars=60, seed=1))
    if not compressed:
        return path
    packed = path.with_name("A.csv.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def as_table(found: Any) -> list[Any]:
    return [column.tolist() for column in found[1:]]


def config(folder: Path) -> Path:
    shipped = Path(__file__).resolve().parents[2] / "configs" / "dqn_cartpole.yaml"
    (folder / "run.yaml").write_bytes(shipped.read_bytes())
    return folder / "run.yaml"


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any], bool]] = {
    "checkpoint": (lambda folder: run_files(folder)[0], load_checkpoint, True),
    "replay": (lambda folder: run_files(folder)[1], lambda path: read_replay(path, known(path)), True),
    "npz": (trajectories, read_sequences, True),
    "csv.gz": (lambda folder: prices(folder, True), lambda path: as_table(read_prices(path)), True),
    "csv": (lambda folder: prices(folder, False), lambda path: as_table(read_prices(path)), False),
    "yaml": (config, read_config, False),
}
"""How each kind is made and read, and whether it has a checksum (without one, a changed digit goes unseen)."""


def known(path: Path) -> list[int]:
    """The identity in the name of a replay's file."""
    _, number, steps = path.stem.rsplit("-", 2)
    return [int(number, 16), int(steps)]


@pytest.mark.fault
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_or_read_as_it_was(kind: str, tmp_path: Path) -> None:
    make, read, checksum = KINDS[kind]

    counts = outcomes(make(tmp_path), read, same)

    held = FILES - counts["unclear"] - counts["traceback"] - (counts["changed"] if checksum else 0)
    print_count(f"damaged {kind} ({', '.join(f'{counts[name]} {name}' for name in OUTCOMES)})", held, FILES)
    assert held == FILES
