from pathlib import Path

import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.paths import expand_path


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path
