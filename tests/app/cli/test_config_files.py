from pathlib import Path

import pytest

from app.cli.config_files import compose, problem
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
    "a hundred levels": (b"a: " + b"[" * 100 + b"]" * 100, "nested too deeply"),
    "deep by aliases": (
        b"a0: &a0 [1]\n" + b"".join(b"a%d: &a%d [*a%d]\n" % (n + 1, n + 1, n) for n in range(100)),
        "nested too deeply",
    ),
    "aliases of aliases": (
        b"a0: &a0 [1, 2]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n + 1, n + 1, n, n) for n in range(20)),
        "more than 100,000 values",
    ),
    "merged mappings": (
        b"a0: &a0 {x: 1}\n"
        + b"".join(b"a%d: &a%d {<<: *a%d, p%d: *a%d, q%d: *a%d}\n" % (n + 1, n + 1, n, n, n, n, n) for n in range(15)),
        "more than 100,000 values",
    ),
    "a list in itself": (b"a: &a [*a]\n", "its alias `*a` stands for a value that contains it"),
    "many values": (b"a: [" + b"1, " * 100_001 + b"]", "more than 100,000 values"),
    "large": (b"a: 1 # " + b"x" * 1_000_000, "more than 1,000,000 bytes"),
    "text": (b"hello\n", "holds no settings"),
    "empty": (b"", "holds no settings"),
    "a number as a name": (b"1: 2\n", "has the setting `1`"),
    "a setting twice": (b"a: 1\nb: {c: 1}\na: 2\n", "line 3, has the setting `a` of line 1 again: remove one of them"),
    "a nested setting twice": (b"a: {b: [{c: 1, d: 2, c: 3}]}\n", "line 1, has the setting `c` of line 1 again"),
}


@pytest.mark.parametrize(("content", "sentence"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_config_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)

    said = problem(path)

    assert sentence in said and str(path) in said


def test_a_config_with_or_without_a_byte_order_mark_is_one(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    merged = b"a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: {<<: *a, <<: *a}\n"
    for content in (GOOD, b"\xef\xbb\xbf" + GOOD, merged):
        path.write_bytes(content)
        assert problem(path) == ""


def test_aliases_and_nesting_of_a_usual_size_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text("a: &a {b: [1, 2]}\nc: [*a, *a, *a]\nd: {<<: *a, e: " + "[" * 98 + "]" * 98 + "}\n")

    assert problem(path) == ""


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "[" * 101 + "]" * 101, "&a [*a]", "[1", "[" * 5000])
def test_a_text_that_is_no_config_has_no_nodes(text: str) -> None:
    assert compose(text) is None


BOMB = "{a: &a [1, 1], b: &b [" + "*a, " * 1000 + "], c: [" + "*b, " * 100 + "]}"


@pytest.mark.parametrize("value", [BOMB, "[" * 5000 + "]" * 5000, "&a [*a]"], ids=["aliases", "deep", "itself"])
@pytest.mark.parametrize("way", ["a value", "a file of one setting"])
def test_a_value_that_is_too_much_is_refused_like_a_file(run: Run, folder: Path, value: str, way: str) -> None:
    (folder / "bad.yaml").write_text(value)

    said = run("fit", "--config", "small.yaml", "--trainer", value if way == "a value" else "bad.yaml")

    assert said.code == 2 and said.err.count("\n") == 1


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
