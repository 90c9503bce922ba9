"""Text of other people's files, made safe for a terminal."""


def printable(text: str) -> str:
    """Remove characters that a terminal acts on (escapes, controls, direction marks); line ends and spaces stay.

    An event file, a checkpoint or the name of a folder could else recolour, rename or overwrite what a terminal shows.
    """
    if text.isprintable():
        return text
    spaced = ("\n" if character == "\n" else " " if character.isspace() else character for character in text)
    return "".join(character for character in spaced if character == "\n" or character.isprintable())


def printable_line(text: str) -> str:
    """Return what `printable` leaves, on one line and with single spaces."""
    return " ".join(printable(text).split())
