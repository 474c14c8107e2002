"""Who may do what: a guard looks at a request and says which role its sender has."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from starlette.requests import HTTPConnection
from starlette.responses import Response

ANONYMOUS = "anonymous"


class Role(enum.StrEnum):
    """What a visitor may do. Each role includes the ones before it.

    A viewer looks. An operator also changes single tasks and what can be taken back: retries,
    cancels by key, pauses. An admin also does what cannot be taken back or concerns many tasks:
    discards and edits letters, strikes, cancels all tasks that match.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. The audit shows the name."""

    role: Role
    name: str = ANONYMOUS

    def may(self, role: Role | str) -> bool:
        """The visitor has this role, or a higher one."""
        return self.role.includes(Role(role))


# None keeps the visitor out; a response (a redirect to a page to sign in) is sent as it is.
Answer = Visitor | Role | Literal["viewer", "operator", "admin"] | Response | None
Guard = Callable[[HTTPConnection], Answer | Awaitable[Answer]]


async def ask(guard: Guard | None, connection: HTTPConnection, *, read_only: bool) -> Visitor | Response | None:
    """The visitor that the guard recognises, or the response that it wants to be sent. Raises
    TypeError or ValueError for an answer that is none of these."""
    if guard is None:
        answer: Answer = Visitor(Role.ADMIN)
    else:
        given = guard(connection)
        answer = await given if inspect.isawaitable(given) else given
    if answer is None or isinstance(answer, Response):
        return answer
    visitor = answer if isinstance(answer, Visitor) else Visitor(_role(answer))
    role = _role(visitor.role)
    return replace(visitor, role=Role.VIEWER if read_only else role, name=_name(visitor.name))


def _name(given: object) -> str:
    # Without this, a change would be made that the audit cannot write down.
    if not isinstance(given, str):
        raise TypeError(f"the guard answered a visitor whose name is {given!r}: a name is a text")
    return given or ANONYMOUS


def _role(given: object) -> Role:
    try:
        return Role(given)
    except ValueError:
        raise TypeError(
            f"the guard answered {given!r}: it answers a Visitor, viewer, operator, admin, a Response, or None"
        ) from None
