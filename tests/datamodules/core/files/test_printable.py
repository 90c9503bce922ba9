import pytest

from datamodules.core.files.printable import counted, printable, printable_line

ACTED_ON = [
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "back\x08space", "over\rwritten", "\x00", "\x7f",
    "\u202egnp.exe", "\u2066isolated\u2069", "zero\u200bwidth", "\ud800", "\u2028", "vertical\x0btab",
]  # fmt: skip


@pytest.mark.parametrize("text", ACTED_ON, ids=range(len(ACTED_ON)))
def test_no_character_is_left_that_a_terminal_acts_on(text: str) -> None:
    assert printable(f"one {text} two").isprintable() and printable_line(text).isprintable()


def test_words_of_any_language_spaces_and_line_ends_stay() -> None:
    assert printable("Größe ± 3\n順序\tüber") == "Größe ± 3\n順序 über"
    assert printable_line(" a\n b\x1b ") == "a b"


@pytest.mark.parametrize(("number", "said"), [(0, "0 runs"), (1, "1 run"), (2000, "2,000 runs")])
def test_a_number_has_a_noun_in_its_form(number: int, said: str) -> None:
    assert counted(number, "run") == said
