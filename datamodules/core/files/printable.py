"""Make text from untrusted files safe to print on a terminal."""


def printable(text: str) -> str:
    """Remove characters that control a terminal (escapes, controls, direction marks); keep line ends and spaces.

    Otherwise an event file, a checkpoint or a folder name could recolour, rename or overwrite the terminal.
    """
    if text.isprintable():
        return text
    spaced = ("\n" if character == "\n" else " " if character.isspace() else character for character in text)
    return "".join(character for character in spaced if character == "\n" or character.isprintable())


def printable_line(text: str) -> str:
    """Return the `printable` text on one line with single spaces."""
    return " ".join(printable(text).split())


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which gets an s unless the number is 1: `1 run`, `2,000 runs`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
