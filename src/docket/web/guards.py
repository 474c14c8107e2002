"""Guards and roles: a guard looks at a request and says which role its sender has. `UsersFile` is a
guard for the command."""

from __future__ import annotations

import asyncio
import base64
import binascii
import enum
import hashlib
import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from docket._aio import in_thread

ANONYMOUS = "anonymous"


class Role(enum.StrEnum):
    """The permission of a visitor. Each role includes the ones before it.

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


_SCHEME = "scrypt"
# About 40 ms and 16 MiB for each password that is tried.
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1
_MEMORY = 64 * 1024 * 1024
# Headers that were right before need no second computation. More are forgotten.
_MOST_REMEMBERED = 1_000
_LONGEST_HEADER = 1_000
# One computation at a time: wrong passwords must not take all cores. Others wait this long.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    role: Role
    password: str


class UsersFile:
    """A guard for HTTP Basic authentication, which browsers, curl and KEDA know.

    Each line of the file is `name:role:password`. The role is viewer, operator or admin. The
    password is plain, or what `docket web --hash-password` prints. Empty lines, and lines that
    begin with #, do not count. Raises ValueError, which names the line and not its content.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._users = _read(Path(path))
        self._known: dict[bytes, Visitor] = {}
        self._secret = secrets.token_bytes(32)
        self._computing = asyncio.Lock()

    async def __call__(self, connection: HTTPConnection) -> Answer:
        header = connection.headers.get("authorization", "")
        if not header or len(header) > _LONGEST_HEADER:
            return _ask_for_password()
        mark = hmac.digest(self._secret, header.encode(errors="surrogateescape"), "sha256")
        known = self._known.get(mark)
        if known is not None:
            return known
        given = _credentials(header)
        if given is None:
            return _ask_for_password()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._computing:
                visitor = await self._check(*given)
        except TimeoutError:
            return PlainTextResponse("Too many passwords are being tried. Try again.\n", 429, {"retry-after": "5"})
        if visitor is None:
            return _ask_for_password()
        if len(self._known) >= _MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[mark] = visitor
        return visitor

    async def _check(self, name: str, password: str) -> Visitor | None:
        user = self._users.get(name)
        # An unknown name takes as long as a wrong password.
        stored = user.password if user is not None else _NOBODY
        is_right = await in_thread(_is_right, password, stored)
        return Visitor(user.role, user.name) if is_right and user is not None else None


def hash_password(password: str) -> str:
    """The password as a line of the file may have it."""
    salt = secrets.token_bytes(16)
    return f"{_SCHEME}${_encode(salt)}${_encode(_digest(password, salt))}"


def _ask_for_password() -> PlainTextResponse:
    headers = {"www-authenticate": 'Basic realm="docket", charset="UTF-8"'}
    return PlainTextResponse("This dashboard asks for a name and a password.\n", 401, headers)


def _credentials(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def _is_right(password: str, stored: str) -> bool:
    if not stored.startswith(f"{_SCHEME}$"):
        # It takes as long as a hashed one, so that nobody finds out which names there are.
        _digest(password, bytes(16))
        return hmac.compare_digest(password.encode(), stored.encode())
    _, salt, digest = stored.split("$")
    return hmac.compare_digest(_digest(password, _decode(salt)), _decode(digest))


def _digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=_MEMORY, dklen=32)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


# The hash of a password that nobody knows.
_NOBODY = f"{_SCHEME}${_encode(bytes(16))}${_encode(bytes(32))}"


def _read(path: Path) -> dict[str, _User]:
    users: dict[str, _User] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            user = _read_user(line)
        except ValueError as error:
            raise ValueError(f"line {number} of {path}: {error}") from None
        if user.name in users:
            raise ValueError(f"line {number} of {path}: there is a line of this name before")
        users[user.name] = user
    if not users:
        raise ValueError(f"{path} has no users: write lines of the form name:role:password")
    return users


def _read_user(line: str) -> _User:
    name, _, rest = line.partition(":")
    role, _, password = rest.partition(":")
    if not name or not password:
        raise ValueError("it is not of the form name:role:password")
    if role not in list(Role):
        raise ValueError(f"its role is not one of {', '.join(Role)}")
    if password.startswith(f"{_SCHEME}$"):
        try:
            _, salt, digest = password.split("$")
            if len(_decode(digest)) != 32 or not _decode(salt):
                raise ValueError
        except ValueError:
            raise ValueError("its hash is damaged: make one with docket web --hash-password") from None
    return _User(name, Role(role), password)
