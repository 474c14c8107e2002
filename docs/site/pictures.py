"""Mermaid sources in the pages become pictures when the site is built, one for each colour scheme.
A browser then needs no script and no other host for them."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import Any

import mermaidx

# MkDocs counts warnings of this logger, and a strict build fails.
log = logging.getLogger("mkdocs.pictures")
CACHE = Path(__file__).resolve().parents[2] / ".docs" / "pictures"
# The scheme of the site, and the theme of Mermaid for it.
THEMES = {"default": "default", "slate": "dark"}


def mermaid(source: str, *_: Any, **__: Any) -> str:
    """The fence `mermaid` of pymdownx.superfences."""
    try:
        pictures = "".join(
            f'<div class="picture-{scheme}">{drawn(source, theme)}</div>' for scheme, theme in THEMES.items()
        )
    except RuntimeError as error:
        # superfences would show the source instead, and say nothing.
        log.warning("A picture cannot be drawn: %s\n%s", error, source)
        raise
    return f'<div class="picture">{pictures}</div>'


def drawn(source: str, theme: str) -> str:
    name = "m" + hashlib.sha256(f"{mermaidx.__version__} {theme} {source}".encode()).hexdigest()[:16]
    file = CACHE / f"{name}.svg"
    if not file.exists():
        picture = mermaidx.render(source, theme=theme).svg()
        picture = picture if isinstance(picture, str) else picture.decode()
        # Styles inside a picture apply to the whole page unless they name its id.
        picture = re.sub(r"^.*?(?=<svg)", "", picture, flags=re.DOTALL).replace("my-svg", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(picture, "utf-8")
    return file.read_text("utf-8")
