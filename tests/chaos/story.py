"""Hand-written histories: a story says what happened, and a rule judges it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chaos.histories import Event
from chaos.model import Model, read_model
from chaos.rules import Rule, Violation

# The wall clock of the stories: second 0 is this time.
WALL = 1_000_000.0


class Story:
    """Events by hand. Times are seconds since the beginning of the story."""

    def __init__(self, *workers: str) -> None:
        self._events: list[Event] = []
        self._requests = 0
        self.note(0.0, "main", "phase", phase="load")
        for worker in workers or ("w0-1", "w1-1"):
            self.note(0.0, "main", "started", process=worker, clock=0.0)

    def note(self, at: float, process: str, kind: str, /, **data: Any) -> Story:
        self._events.append(Event(at, WALL + at, process, kind, data))
        return self

    # Producers

    def request(self, at: float, kind: str, how: str | None = "scheduled", /, **data: Any) -> Story:
        """A request that is answered a tenth of a second later; `how=None` is never answered."""
        self._requests += 1
        self.note(at, "p0-1", kind, request=self._requests, **data)
        if how is not None:
            self.note(at + 0.1, "p0-1", "answer", request=self._requests, how=how)
        return self

    def add(
        self,
        at: float,
        key: str,
        function: str = "plain",
        *,
        token: str | None = None,
        args: Iterable[Any] = (),
        due: float | None = None,
        how: str | None = "scheduled",
        kind: str = "add",
    ) -> Story:
        wall = WALL + due if due is not None else None
        return self.request(at, kind, how, key=key, function=function, token=token or key, args=list(args), due=wall)

    # Workers

    def run(
        self,
        at: float,
        until: float | None,
        key: str,
        function: str = "plain",
        *,
        on: str = "w0-1",
        epoch: int = 1,
        how: str = "ok",
        token: str | None = None,
        attempt: int = 1,
        claimed: float | None = None,
        **details: Any,
    ) -> Story:
        """A run; `until=None` means that its process died before it ended."""
        run = f"{on}.{epoch}"
        self.note(
            at,
            on,
            "start",
            run=run,
            key=key,
            token=token or key,
            function=function,
            epoch=epoch,
            attempt=attempt,
            claimed=WALL + (at if claimed is None else claimed),
            due=WALL,
            redelivered=False,
            **details,
        )
        return self if until is None else self.note(until, on, "end", run=run, how=how)

    # The nemesis

    def fault(self, at: float, until: float, kind: str, *targets: str) -> Story:
        number = len(self._events)
        self.note(at, "main", "fault", number=number, fault=kind, targets=list(targets))
        return self.note(until, "main", "healed", number=number)

    def exited(self, at: float, process: str, code: int) -> Story:
        return self.note(at, "main", "exited", process=process, code=code)

    # The server

    def record(self, key: str, state: str = "completed", function: str = "plain", **data: Any) -> Story:
        defaults = {"token": key, "epoch": 1, "error": None, "ttl": 1000, "buried": False, "result": None}
        return self.note(90.0, "main", "record", key=key, state=state, function=function, **{**defaults, **data})

    def state(self, at: float, key: str, state: str, *, goes_on: bool = False) -> Story:
        return self.note(at, "main", "state", key=key, state=state, goes_on=goes_on)

    # The verdict

    def model(self) -> Model:
        return read_model(sorted(self._events, key=lambda event: event.at))

    def found_by(self, rule: Rule) -> list[Violation]:
        return list(rule(self.model()))


def assert_good(rule: Rule, story: Story) -> None:
    found = story.found_by(rule)
    assert not found, f"{rule.__name__}: {found[0].text}"


def assert_bad(rule: Rule, story: Story, text: str) -> None:
    """The rule finds exactly one violation, whose text contains this."""
    found = story.found_by(rule)
    assert len(found) == 1, f"{rule.__name__} found {[violation.text for violation in found]}"
    assert text in found[0].text
