import resource
from pathlib import Path

import pytest
import torch

from callbacks.run_control.atomic_write import atomic_write, save_tensors, sweep_unfinished
from datamodules.core.errors import UnwritableFileError


def test_the_file_appears_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metrics.json"

    with atomic_write(path) as file:
        file.write(b"{}")
        assert not path.exists()

    assert path.read_bytes() == b"{}"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_bytes(b"old")

    with pytest.raises(OSError, match="disk full"), atomic_write(path) as file:
        file.write(b"ne")
        raise OSError("disk full")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UnwritableFileError, match="File too large") as error:
            save_tensors({"weights": torch.zeros(100_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert error.value.filename == str(path)
    assert not [*tmp_path.iterdir()]


def test_temporary_files_of_killed_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    for name in (".last.ckpt.4194999.unfinished", ".last.replay-0-ab.pt.7.unfinished", ".mine.unfinished", "mine.pt"):
        (tmp_path / name).touch()

    with atomic_write(tmp_path / "metrics.json") as file:
        sweep_unfinished(tmp_path)
        file.write(b"{}")

    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.unfinished", "metrics.json", "mine.pt"]


@pytest.mark.parametrize("folder", ["file", "/proc", "/proc/a"])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / folder / "metrics.json"

    with pytest.raises(UnwritableFileError) as error, atomic_write(path):
        pass

    assert error.value.filename == str(path)
