"""The templates of the dashboard. Every text in them is escaped twice: for HTML, and so that no
control character or change of direction reaches the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from docket.model.texts import escaped, escaped_lines

FOLDER = Path(__file__).with_name("templates")


def environment(folder: Path = FOLDER) -> Environment:
    """A misspelled name in a template is an error, not an empty text."""
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["lines"] = shown_lines
    return made


def shown(value: Any) -> Any:
    """What `{{ value }}` shows. Texts of users and of the server pass here without any filter; the
    environment then escapes them for HTML."""
    if value is None:
        return ""
    if isinstance(value, Markup) or hasattr(value, "__html__"):
        return value
    return escaped(value) if isinstance(value, str) else value


def shown_lines(text: str) -> Markup:
    """A text of several lines, such as a traceback: line breaks and tabs stay."""
    return escape(escaped_lines(str(text)))
