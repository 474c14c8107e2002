"""Who is signed in. In your service this is a table of sessions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class User:
    email: str
    is_admin: bool


_SESSIONS = {"ann-4711": User("ann@example.com", is_admin=True), "bob-4712": User("bob@example.com", is_admin=False)}


async def find_user(session: str | None) -> User | None:
    return _SESSIONS.get(session or "")
