"""Text from users and from the server, as it may be shown on a terminal and in a log."""

from __future__ import annotations

import json
from typing import Any

_to_json = json.JSONEncoder(default=str, ensure_ascii=False).encode


def escaped(text: str) -> str:
    """Escapes control characters, line breaks and characters that change the direction of text.
    Keys, names and messages must neither control a terminal nor look like another line of a log."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def escaped_lines(text: str) -> str:
    """Escapes control characters, but not line breaks and
    tabs: for texts of several lines, such as a traceback."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else escaped(c) for c in text)


def as_json_line(value: Any) -> str:
    """The value as JSON on one line, without characters that control a terminal."""
    text = _to_json(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
