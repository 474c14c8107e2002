"""Shows the demo on a terminal, or line by line."""

from __future__ import annotations

import time
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

import typer
from rich.live import Live

from docket.cli.support.output import console
from docket.cli.top_screen import TopScreen
from docket.inspection.live import LiveState


class Stage(Protocol):
    """Shows captions, and the state of an observer every `interval` seconds."""

    interval: float

    def say(self, caption: str) -> None: ...

    def draw(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class ScreenStage:
    """The view of `docket top`, with captions."""

    interval: float = 0.25

    def __init__(self, state: LiveState, seconds: float | None, foot: str) -> None:
        self._view = TopScreen("docket demo: a small shop", state)
        self._view.foot = foot
        self._live = Live(self._view, console=console(), screen=True, auto_refresh=False)
        self._end = None if seconds is None else time.monotonic() + seconds

    def say(self, caption: str) -> None:
        self._view.caption = caption

    def draw(self) -> None:
        left = "" if self._end is None else f"{max(self._end - time.monotonic(), 0):.0f} s left, "
        self._view.hint = f"{left}q: quit"
        self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()


class LineStage:
    """Writes captions and counts as lines, for logs."""

    interval: float = 2.0

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def say(self, caption: str) -> None:
        typer.echo(f"{datetime.now():%H:%M:%S}  {caption}")

    def draw(self) -> None:
        census, totals = self._state.census, self._state.totals
        if census is not None:
            typer.echo(
                f"{datetime.now():%H:%M:%S}  running {census.running:,}  ready {census.ready + census.parked:,}  "
                f"scheduled {census.scheduled:,}  completed {totals.completed:,}  failed {totals.failed:,}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None
