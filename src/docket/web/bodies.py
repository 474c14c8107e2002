"""Reads the bodies of requests: JSON and forms, of bounded size."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from .failures import Refused
from .inputs import refused

MOST_BYTES = 1024 * 1024
_MOST_FIELDS = 2_000


async def read_body(request: Request) -> bytes:
    """Raises Refused (413) for a body that is too large."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > MOST_BYTES:
            raise Refused(413, "too-large", "The request is too large", f"It may have {MOST_BYTES:,} bytes.")
    return bytes(found)


async def read_json_body(request: Request) -> Any:
    """Raises Refused for another type (415) and for a body that is not JSON (400)."""
    _check_type(request, "application/json")

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        return json.loads((await read_body(request)) or b"{}", parse_constant=refuse)
    except (ValueError, RecursionError):
        raise refused("The body is not JSON.") from None


async def read_form_body(request: Request) -> list[tuple[str, str]]:
    """The fields of a form that is not multipart."""
    _check_type(request, "application/x-www-form-urlencoded")
    try:
        text = (await read_body(request)).decode("ascii")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise refused("The body is not a form.") from None


def _check_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise Refused(415, "media-type", "The type of the body is not supported", f"Send {wanted}.")
