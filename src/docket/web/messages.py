"""What became of a change, for the page that the browser shows next. A cookie carries it, so it
works without JavaScript, and with several web processes."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

_COOKIE = "docket-message"
_MOST = 500
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    is_error: bool = False


def with_message(response: Response, root: str, text: str | None, *, is_error: bool = False) -> None:
    """Sets the message, or removes it if there is no text."""
    path = f"{root}/"
    if text is None:
        response.delete_cookie(_COOKIE, path, httponly=True, samesite="strict")
        return
    cut = text if len(text) <= _MOST else f"{text[:_MOST]}…"
    content = base64.urlsafe_b64encode(f"{int(is_error)}{cut}".encode(errors="replace")).decode().rstrip("=")
    response.set_cookie(_COOKIE, content, _SECONDS, path=path, httponly=True, samesite="strict")


def read_message(request: Request) -> Said | None:
    """The message of the last change. Anything else in the cookie is ignored."""
    content = request.cookies.get(_COOKIE)
    if not content or len(content) > 8 * _MOST:
        return None
    try:
        found = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    return Said(found[1:], found[0] == "1") if found[:1] in ("0", "1") else None
