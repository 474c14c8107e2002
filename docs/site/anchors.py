"""Anchors of headings as the repository's web page makes them, so that a link works in both."""

from __future__ import annotations

import re


def slug(heading: str, separator: str = "-") -> str:
    text = re.sub(r"<[^>]+>", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", separator)
