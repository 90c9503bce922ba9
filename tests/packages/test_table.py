"""The page of tested packages has every row, and none that fails."""

from tests.packages.rows import PINS, ROWS
from tests.packages.table import PAGE, existing, key, page


def test_the_page_has_every_row_and_none_fails() -> None:
    lines = {key(line): line for line in existing()}

    for row in ROWS:
        packages = (PINS[row.packages] or (row.packages,))[0].partition("==")[0]
        assert (packages, f"`{row.env}`") in lines, f"python -m tests.packages.table {row.packages}"
    assert not [line for line in lines.values() if "**fails**" in line]


def test_the_page_is_what_the_command_writes() -> None:
    assert page([]) == PAGE.read_text(encoding="utf-8")


def test_new_lines_replace_those_of_the_same_environment() -> None:
    old = existing()[0]
    new = old.replace(old.split(" | ")[-1], "changed |")

    assert new in page([new]) and old not in page([new])
