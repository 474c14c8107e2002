"""Text from users and from the server, as it may be shown on a terminal and in a log."""

from __future__ import annotations


def escaped(text: str) -> str:
    """Escapes control characters, line breaks and characters that change the direction of text.
    Keys, names and messages must neither control a terminal nor look like another line of a log."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def escaped_lines(text: str) -> str:
    """The same, but line breaks and tabs stay: for texts of several lines, such as a traceback."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else escaped(c) for c in text)
