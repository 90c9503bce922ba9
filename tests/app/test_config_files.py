from pathlib import Path

import pytest

from app.config_files import problem
from tests.app.conftest import EXPERIMENT, Run

GOOD = EXPERIMENT.encode()
BAD = {
    "Latin-1": (GOOD + b"# caf\xe9\n", "is not UTF-8 text (byte"),
    "UTF-16": (EXPERIMENT.encode("utf-16"), "is not UTF-8 text (byte 0 is 0xff): save it as UTF-8"),
    "NUL": (b"a: \x00b\n", "is not valid YAML"),
    "broken": (b"a: 1\nb: [1,\n", "line 3, is not valid YAML"),
    "a list as a key": (b"? [1, 2]\n: 3\n", "line 1, is not valid YAML"),
    "code": (b"a: !!python/object/apply:os.system [ls]\n", "line 1, is not valid YAML"),
    "a date that is none": (b"a: 2020-99-99\n", "is not valid YAML"),
    "deep": (b"a: " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
    "text": (b"hello\n", "holds no settings"),
    "empty": (b"", "holds no settings"),
    "a number as a name": (b"1: 2\n", "has the setting `1`"),
}


@pytest.mark.parametrize(("content", "sentence"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_config_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)

    said = problem(path)

    assert sentence in said and str(path) in said


def test_a_config_with_or_without_a_byte_order_mark_is_one(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    for content in (GOOD, b"\xef\xbb\xbf" + GOOD):
        path.write_bytes(content)
        assert problem(path) == ""


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "--config", "bad.yaml"),
        ("fit", "--config=bad.yaml"),
        ("fit", "--config", "small.yaml", "--trainer", "bad.yaml"),
        ("compare", "-c", "small.yaml", "-c", "bad.yaml", "--metric", "eval/return_mean", "--threshold", "1"),
        ("diagnose", "--config", "bad.yaml"),
    ],
)
def test_every_verb_refuses_a_config_that_is_not_utf8(run: Run, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "bad.yaml").write_bytes(GOOD + b"# caf\xe9\n")

    outcome = run(*words)

    assert outcome.code == 2
    assert "bad.yaml` is not UTF-8 text" in outcome.err and outcome.err.count("\n") == 1
