"""The templates of the dashboard, and its scripts, styles and pictures below a path that changes
with their content. Every text in a template is escaped twice: for HTML, and so that no control
character or change of direction reaches the page."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from docket.model.texts import escaped, escaped_lines

TEMPLATES_FOLDER = Path(__file__).with_name("templates")


def environment(folder: Path = TEMPLATES_FOLDER) -> Environment:
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
    """The text for `{{ value }}`. Texts of users and of the server pass here without any filter;
    the environment then escapes them for HTML."""
    if value is None:
        return ""
    if isinstance(value, Markup) or hasattr(value, "__html__"):
        return value
    return escaped(value) if isinstance(value, str) else value


def shown_lines(text: str) -> Markup:
    """A text of several lines, such as a traceback: line breaks and tabs stay."""
    return escape(escaped_lines(str(text)))


ASSETS_FOLDER = Path(__file__).with_name("assets")
# The name of the content never changes its meaning, so a browser need not ask again.
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_SUFFIXES = (".css", ".js", ".svg", ".png", ".woff2", ".ico", ".txt", ".json", ".webmanifest")
_COMPRESSED = (".css", ".js", ".svg", ".json", ".txt", ".webmanifest")


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    compressed: bytes | None
    media_type: str


class AssetFiles:
    """All assets, in memory: they are small, and no path of a request reaches the file system."""

    def __init__(self, folder: Path = ASSETS_FOLDER) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
        self._assets = {path.relative_to(folder).as_posix(): _read(path) for path in paths}
        content = hashlib.sha256()
        for name, asset in self._assets.items():
            content.update(f"{name}\n{len(asset.content)}\n".encode() + asset.content)
        self.digest: str = content.hexdigest()[:16]

    def path(self, name: str) -> str:
        """Where the asset is, below the root of the dashboard. Raises KeyError if there is none."""
        if name not in self._assets:
            raise KeyError(f"there is no asset {name!r}; there are {', '.join(self._assets) or 'none'}")
        return f"assets/{self.digest}/{name}"

    async def answer(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            raise HTTPException(404)
        is_current = request.path_params["digest"] == self.digest
        headers = {"cache-control": _FOR_EVER if is_current else _ASK_AGAIN, "vary": "accept-encoding"}
        if asset.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(
                asset.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=asset.media_type
            )
        return Response(asset.content, headers=headers, media_type=asset.media_type)


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    compressed = gzip.compress(content, 9, mtime=0) if path.suffix in _COMPRESSED else None
    return Asset(content, compressed, _media_type(path))


def _media_type(path: Path) -> str:
    # The system's table may be wrong or empty.
    known = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
    return known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
