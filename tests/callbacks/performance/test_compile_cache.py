"""Compiled code is kept in the user's cache folder, found again, and compiled again if it is damaged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torch._inductor.utils import clear_caches

from callbacks.performance.compile import CACHE_VARIABLE, keep_compiled_code
from datamodules.core.phase import Phase


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(CACHE_VARIABLE, "")
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path
    clear_caches()


class Doubled:
    """A function to compile."""

    def double(self, x: Tensor) -> Tensor:
        return 2 * x + 1

    def run(self, x: Tensor) -> Tensor:
        return self.double(x)


def compiled_anew() -> tuple[str, Tensor, int]:
    """Compile as a later process would; return the mode, a result, and how much was found in the cache."""
    clear_caches()
    counters.clear()
    keep_compiled_code()
    owner = Doubled()
    phase = Phase(owner.run, torch.device("cpu"), compile_targets=[(owner, "double")])
    phase.mode = "default"
    result = phase(torch.arange(4.0))
    return phase.execution_mode, result, counters["inductor"]["fxgraph_cache_hit"]


@pytest.mark.timeout(600)  # the C++ compiler takes minutes on a machine with other work
def test_compiled_code_is_found_by_the_next_run_and_made_again_where_it_is_damaged(home: Path) -> None:
    expected = torch.tensor([1.0, 3.0, 5.0, 7.0])
    first = compiled_anew()
    second = compiled_anew()
    for file in (path for folder in ("fxgraph", "aotautograd") for path in home.rglob(f"{folder}/**/*")):
        if file.is_file():
            file.write_bytes(b"damaged")
    third = compiled_anew()

    assert [mode for mode, _, _ in (first, second, third)] == ["compiled"] * 3
    assert all(torch.equal(result, expected) for _, result, _ in (first, second, third))
    assert [found > 0 for *_, found in (first, second, third)] == [False, True, False]
    assert Path(os.environ[CACHE_VARIABLE]).is_relative_to(home / "leyden" / "compile")


def test_torchs_default_in_the_environment_is_no_choice(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, default_cache_dir())
    keep_compiled_code()
    assert Path(os.environ[CACHE_VARIABLE]).is_relative_to(home / "leyden" / "compile")


def test_a_folder_that_the_environment_names_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "own"))
    keep_compiled_code()
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "own")


def test_without_a_cache_folder_that_can_be_written_torchs_own_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_compiled_code()
    assert CACHE_VARIABLE not in os.environ
