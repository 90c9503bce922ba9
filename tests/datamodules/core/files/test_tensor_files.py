from pathlib import Path
from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import LONGEST_CAUSE, first_line, load_tensors


class Executes:
    """Runs code when unpickled without care."""

    def __reduce__(self) -> Any:
        return (print, ("executed",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.pt"
    torch.save({"weights": torch.arange(1000.0), "step": 3}, path)
    return path


def refused(path: Path, **how: Any) -> str:
    with pytest.raises(ConfigurationError) as error:
        load_tensors(path, cure="take another", **how)
    assert str(path) in str(error.value) and str(error.value).endswith(": take another.")
    return str(error.value)


@pytest.mark.parametrize("mmap", [False, True])
def test_what_was_saved_is_loaded(path: Path, mmap: bool) -> None:
    assert torch.equal(load_tensors(path, cure="", mmap=mmap)["weights"], torch.arange(1000.0))


@pytest.mark.parametrize("mmap", [False, True])
def test_one_changed_bit_of_a_tensor_is_seen(path: Path, mmap: bool) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(torch.arange(990.0, 1000.0).numpy().tobytes())] ^= 1
    path.write_bytes(content)

    assert "another checksum" in refused(path, mmap=mmap)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"learning_rate: 0.1\n", b"\x80\x02]q\x00.", bytes(100)])
def test_what_torch_did_not_write_is_one_sentence(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    assert "\n" not in refused(path)


def test_a_truncated_file_is_damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-700])

    assert "is damaged" in refused(path)


def test_code_is_refused_and_not_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"evil": Executes()}, path)

    assert "could execute code" in refused(path)
    assert capsys.readouterr().out == ""


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    assert "There is no file" in refused(tmp_path / "none.pt")


@pytest.mark.parametrize("content", [b"# Leyden\n", b"PK\x03\x04", None])
def test_an_unreadable_file_is_one_plain_sentence_without_the_advice_of_torch(
    path: Path, content: bytes | None
) -> None:
    path.write_bytes(path.read_bytes()[:3_000] if content is None else content)

    said = refused(path)

    assert "is damaged, or not a file of tensors such as a checkpoint" in said
    assert "miniz" not in said and "Weights only" not in said and ". " not in said


def test_the_cause_of_an_error_is_its_first_sentence_and_ends_with_a_whole_word() -> None:
    assert first_line(RuntimeError("version 2.6 failed. If you see this")) == "RuntimeError: version 2.6 failed"
    assert first_line(ValueError("no table\nwas found.")) == "ValueError: no table"
    assert first_line(EOFError()) == "EOFError"
    cut = first_line(ValueError("word " * LONGEST_CAUSE)).removeprefix("ValueError: ")
    assert len(cut) <= LONGEST_CAUSE and set(cut.split()) == {"word", "..."}
