from pathlib import Path

import pytest

from callbacks.atomic import atomic_file


def test_the_file_appears_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metrics.json"

    with atomic_file(path) as file:
        file.write(b"{}")
        assert not path.exists()

    assert path.read_bytes() == b"{}"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_bytes(b"old")

    with pytest.raises(OSError, match="disk full"), atomic_file(path) as file:
        file.write(b"ne")
        raise OSError("disk full")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
