import os
from pathlib import Path

import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.paths import expand_path, require_writable


def test_variables_and_the_home_are_expanded_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/me")
    monkeypatch.setenv("PLACE", "~/data")

    assert expand_path("$PLACE/a") == expand_path("${PLACE}/a") == expand_path(Path("~/data/a")) == "/me/data/a"
    assert expand_path("a~b/c") == "a~b/c" and expand_path("") == ""


@pytest.mark.parametrize("path", ["$NOWHERE_SET/a", "${NOWHERE_SET}", "~no_such_user/a"])
def test_what_cannot_be_expanded_is_refused_unless_it_is_a_name(path: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="The path `"):
        expand_path(path)
    (folder / path).mkdir(parents=True)

    assert expand_path(path) == path


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has a NUL"):
        expand_path("a\0b")


def test_a_folder_that_can_be_made_is_taken_and_nothing_is_left(tmp_path: Path) -> None:
    require_writable(tmp_path / "free" / "small")
    require_writable(tmp_path)

    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("below", [".", "a/b"])
def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "runs").touch()

    with pytest.raises(ConfigurationError, match="runs is a file: choose another dirpath"):
        require_writable(tmp_path / "runs" / below, "dirpath")


@pytest.mark.parametrize("folder", ["/proc", "/proc/a/b", "a" * 300])
def test_a_folder_in_which_no_file_can_be_made_is_refused(folder: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        require_writable(Path(folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(ConfigurationError, match="cannot be written"):
        require_writable(tmp_path / "runs")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path
