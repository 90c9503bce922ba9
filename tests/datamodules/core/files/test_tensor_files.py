from pathlib import Path
from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import load_tensors


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
