"""The fields of requests: they have types, are read from JSON, from the query of a URL or from a
form, and described for the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from .problems import Refused

# The longest text and the longest list that a request may have.
LONGEST_TEXT, MOST_ITEMS = 10_000, 1_000
# More than docket keeps anything.
LONGEST_SECONDS = 10 * 366 * 86_400
# The largest whole number that JSON of all programs carries exactly.
LARGEST = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Input:
    """One field. `read` makes its value of a JSON value, `read_text` of a text; both raise
    ValueError with a text that says what is expected."""

    name: str
    help: str
    schema: Mapping[str, Any]
    read: Callable[[Any], Any]
    read_text: Callable[[str], Any]
    is_required: bool = False
    is_list: bool = False
    # In forms such texts are percent-encoded: browsers change line breaks, and keys may have any.
    is_encoded: bool = False
    # How a form says it, if that is not a text as in a query.
    read_field: Callable[[str], Any] | None = None


def refused(detail: str) -> Refused:
    return Refused(400, "bad-request", "The request is not valid", detail)


def read_json(inputs: Sequence[Input], body: object) -> dict[str, Any]:
    """The values of a JSON body. Fields that are not there are left out."""
    if not isinstance(body, dict):
        raise refused("The body has to be a JSON object.")
    return _read(inputs, cast("dict[str, Any]", body), lambda one, value: one.read(value))


def read_query(inputs: Sequence[Input], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values of the query of a URL. Each name may be there once."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise refused(f"{name}: it is there twice.")
        given[name] = value
    return _read(inputs, given, lambda one, value: one.read_text(value))


def read_form(inputs: Sequence[Input], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values of a form. An empty field counts as not given, since a browser sends it, too."""
    given: dict[str, list[str]] = {}
    for name, value in pairs:
        if value:
            given.setdefault(name, []).append(value)

    def read(one: Input, values: list[str]) -> Any:
        if one.is_encoded:
            values = [unquote(value, errors="strict") for value in values]
        if one.is_list:
            return one.read([one.read_text(value) for value in values])
        if len(values) > 1:
            raise ValueError("it is there twice")
        return (one.read_field or one.read_text)(values[0])

    return _read(inputs, given, read)


def _read(inputs: Sequence[Input], given: Mapping[str, Any], read: Callable[[Input, Any], Any]) -> dict[str, Any]:
    known = {one.name: one for one in inputs}
    for name in given:
        if name not in known:
            raise refused(f"{name!r} is not a field here; there are {', '.join(known) or 'none'}.")
    found: dict[str, Any] = {}
    for one in inputs:
        if one.name not in given:
            if one.is_required:
                raise refused(f"{one.name}: it is missing.")
            continue
        try:
            found[one.name] = read(one, given[one.name])
        except ValueError as error:
            raise refused(f"{one.name}: {error}.") from None
    return found


# Kinds of fields


def keys(one: Input) -> Input:
    """A field with keys of tasks."""
    return replace(one, is_encoded=True)


def text(
    name: str, help: str, *, choices: Sequence[str] = (), required: bool = False, longest: int = LONGEST_TEXT
) -> Input:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": longest}
    if choices:
        schema = {"type": "string", "enum": list(choices)}

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("it has to be a text")
        if choices and value not in choices:
            raise ValueError(f"it has to be one of {', '.join(choices)}")
        if not 1 <= len(value) <= longest:
            raise ValueError(f"it has to have from 1 to {longest:,} characters")
        return value

    return Input(name, help, schema, read, read, required)


def whole(name: str, help: str, *, least: int = 0, most: int = LARGEST, required: bool = False) -> Input:
    schema = {"type": "integer", "minimum": least, "maximum": most}

    def read(value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("it has to be a whole number")
        if not least <= value <= most:
            raise ValueError(f"it has to be from {least} to {most}")
        return value

    def read_text(value: str) -> int:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise ValueError("it has to be a whole number")
        return read(int(value))

    return Input(name, help, schema, read, read_text, required)


def flag(name: str, help: str) -> Input:
    def read(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("it has to be true or false")
        return value

    def read_text(value: str) -> bool:
        known = {"true": True, "on": True, "false": False}
        if value not in known:
            raise ValueError("it has to be true or false")
        return known[value]

    return Input(name, help, {"type": "boolean"}, read, read_text)


def seconds(name: str, help: str) -> Input:
    """A duration, in seconds."""
    schema = {"type": "number", "minimum": 0, "maximum": LONGEST_SECONDS}

    def read(value: Any) -> timedelta:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError("it has to be a number of seconds")
        if not 0 <= value <= LONGEST_SECONDS:
            raise ValueError(f"it has to be from 0 to {LONGEST_SECONDS:,} seconds")
        return timedelta(seconds=value)

    def read_text(value: str) -> timedelta:
        try:
            number = float(value)
        except ValueError:
            raise ValueError("it has to be a number of seconds") from None
        return read(number)

    return Input(name, help, schema, read, read_text)


def moment(name: str, help: str) -> Input:
    """A time in ISO 8601, with its zone. In a form a time without a zone is UTC: the browser's
    field for a time has none, and pages say that it is UTC."""

    def read(value: Any) -> datetime:
        problem = "it has to be a time in ISO 8601 with its zone, such as 2026-01-31T09:00:00Z"
        try:
            found = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise ValueError(problem) from None
        if found.tzinfo is None:
            raise ValueError(problem)
        return found

    def read_field(value: str) -> datetime:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return read(value)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    schema = {"type": "string", "format": "date-time"}
    return Input(name, help, schema, read, read, read_field=read_field)


def texts(name: str, help: str, *, required: bool = False) -> Input:
    one = text(name, help)
    schema = {"type": "array", "items": dict(one.schema), "minItems": 1, "maxItems": MOST_ITEMS}
    return Input(
        name, help, schema, lambda value: [one.read(item) for item in _items(value)], one.read_text, required, True
    )


def wholes(name: str, help: str, *, required: bool = False) -> Input:
    one = whole(name, help)
    schema = {"type": "array", "items": dict(one.schema), "minItems": 1, "maxItems": MOST_ITEMS}
    return Input(
        name, help, schema, lambda value: [one.read(item) for item in _items(value)], one.read_text, required, True
    )


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it has to be a list")
    items = cast("list[Any]", value)
    if not 1 <= len(items) <= MOST_ITEMS:
        raise ValueError(f"it has to have from 1 to {MOST_ITEMS:,} items")
    return items


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
