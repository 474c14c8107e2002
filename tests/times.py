"""Points in time for tests."""

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    return datetime.now(UTC)


def soon(milliseconds: float = 50) -> datetime:
    return now() + timedelta(milliseconds=milliseconds)


def later() -> datetime:
    """So far away that no test sees it."""
    return now() + timedelta(hours=1)
