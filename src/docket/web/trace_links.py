"""Links to a tracing system, as the owner of the dashboard has set them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

PLACE = "{trace_id}"
_HOW = "write it like https://tracing.example/trace/{trace_id}"


@dataclass(frozen=True, slots=True)
class TraceLinks:
    """The address of a trace: a URL in which `{trace_id}` stands for its id.

    Raises ValueError for a text that is not such a URL: a page may contain it as a link.
    """

    url: str

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise TypeError(f"trace_url={self.url!r} is not a text: {_HOW}")
        if any(not "!" <= letter <= "~" for letter in self.url):
            raise ValueError(f"trace_url={self.url!r} has a space or a letter that a URL cannot have: {_HOW}")
        if self.url.count(PLACE) != 1 or set("{}") & set(self.url.replace(PLACE, "")):
            raise ValueError(f"trace_url={self.url!r} needs {PLACE} once, and no other braces: {_HOW}")
        problem = f"trace_url={self.url!r} is not an http or https URL with a host: {_HOW}"
        try:
            parts = urlsplit(self.url)
            is_address = parts.hostname and parts.port != 0 and PLACE not in parts.netloc
        except ValueError:
            raise ValueError(problem) from None
        if not is_address or parts.scheme not in ("http", "https"):
            raise ValueError(problem)
        if parts.username is not None:
            raise ValueError("trace_url has a user name or a password, which everybody would see: leave them out")

    def of(self, trace_id: str) -> str:
        """The address of one trace. The id consists of hexadecimal digits."""
        return self.url.replace(PLACE, trace_id)
