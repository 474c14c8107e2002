"""Errors as a visitor sees them: a page for people, problem+json (RFC 9457) for programs."""

from __future__ import annotations

import http
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from docket import errors
from docket.storage.client.faults import DamagedData

# How soon a page whose server is away asks again.
HEAL_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request has no better answer. `name` is for programs; a page that `heals` asks again by
    itself."""

    status: int
    name: str
    title: str
    detail: str
    heals: bool = False
    headers: Mapping[str, str] | None = None


class Refused(HTTPException):
    """A request that is not carried out, with the reason for its sender."""

    def __init__(self, status: int, name: str, title: str, detail: str) -> None:
        super().__init__(status, detail)
        self.problem: Problem = Problem(status, name, title, detail)


# The first class that fits counts. Status, name and title of each; the text of the error follows.
_ERRORS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (errors.UnknownVersion, 503, "newer-release", "This docket was written by a newer release"),
    (errors.ServerFull, 503, "server-full", "The server is out of memory"),
    (errors.ServerUnreachable, 503, "server-unreachable", "The server cannot be reached"),
    (errors.NotPermitted, 503, "not-permitted", "The server does not permit this"),
    (DamagedData, 503, "damaged-data", "The data of this docket is damaged"),
    (errors.ServerUnsuitable, 503, "server-unsuitable", "The server cannot be used"),
    (errors.NotOpen, 503, "not-open", "This docket is not open"),
    (errors.TaskNotFound, 404, "task-not-found", "There is no such task"),
    (errors.LetterNotFound, 404, "letter-not-found", "There is no such dead letter"),
    (errors.NotPaused, 404, "not-paused", "There is no such pause"),
    (errors.TaskNotRegistered, 409, "function-unknown", "This dashboard does not know the function"),
    (errors.LetterChanged, 409, "letter-changed", "Somebody else has changed the dead letter"),
    (errors.TooManyPauses, 409, "too-many-pauses", "There are too many pauses"),
    (errors.EmptyFilter, 400, "empty-filter", "The filter is empty"),
    (errors.TooLong, 400, "too-long", "A text is too long"),
    (errors.PayloadTooLarge, 400, "too-large", "The arguments are too large"),
    (errors.Unserializable, 400, "not-storable", "A value cannot be stored"),
    (errors.Undecodable, 502, "damaged", "A stored record cannot be read"),
    (errors.DocketError, 500, "failed", "docket could not do this"),
    (TimeoutError, 503, "server-slow", "The server answers slowly"),
)
_ADVICE = {
    "newer-release": "Upgrade docket where this dashboard runs.",
    "not-open": "Open it in your application, as in `async with docket:`, before requests arrive.",
}


def explain(error: Exception) -> Problem:
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, HTTPException):
        phrase = http.HTTPStatus(error.status_code).phrase
        detail = error.detail if error.detail != phrase else _PLAIN.get(error.status_code, phrase)
        return Problem(error.status_code, phrase.lower().replace(" ", "-"), phrase, detail, headers=error.headers)
    for kind, status, name, title in _ERRORS:
        if isinstance(error, kind):
            text = str(error) or title
            detail = " ".join((f"{text.rstrip('.')}.", _ADVICE.get(name, ""))).strip()
            return Problem(status, name, title, detail, heals=status == 503)
    # The details of a bug are for the log.
    return Problem(500, "bug", "Something went wrong", "The log of the dashboard has the details.")


_PLAIN = {
    404: "There is no such page.",
    405: "This address does not take such a request.",
}
