"""The options that say which docket a command works on, and how it is set."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from docket.cli.durations import duration
from docket.cli.failures import WrongUsage
from docket.cli.numbers import positive
from docket.cli.task_modules import load
from docket.docket import Docket
from docket.errors import DocketError
from docket.settings import change_settings, is_open
from docket.storage.urls import hide_password

logger: logging.Logger = logging.getLogger("docket.worker")

R = TypeVar("R")

DEFAULT_DOCKET = "docket"
DEFAULT_URL = "redis://localhost:6379/0"

_OBJECTS = ("result_storage", "credential_provider")
_PANEL = "Settings of the docket"


@dataclass(frozen=True)
class DocketOptions:
    """The settings of a docket that the user gave. None leaves a setting to the application or,
    without one, to its default."""

    app: str | None = None
    docket: str | None = None
    url: str | None = None
    execution_ttl: timedelta | None = None
    heartbeat_interval: timedelta | None = None
    missed_heartbeats: int | None = None
    max_payload: int | None = None
    max_losses: int | None = None
    add_patience: timedelta | None = None
    result_storage: str | None = None
    credential_provider: str | None = None

    def load(self) -> Docket:
        """The docket, not open. WrongUsage if there is none, or if it cannot be set like this."""
        changes = self._changes()
        try:
            if self.app is None:
                return Docket(**changes)
            docket = load_app(self.app)
            if changes:
                self._tell_overridden(docket)
                change_settings(docket, **changes)
            return docket
        except DocketError:
            raise
        except ValueError as error:
            raise WrongUsage(str(error)) from error

    def _changes(self) -> dict[str, Any]:
        given = {field.name: getattr(self, field.name) for field in fields(DocketOptions) if field.name != "app"}
        given["name"] = given.pop("docket")
        changes = {name: value for name, value in given.items() if value is not None}
        for name in _OBJECTS:
            if name in changes:
                changes[name] = load(f"--{name.replace('_', '-')}", changes[name])
        return changes

    def _tell_overridden(self, docket: Docket) -> None:
        """A variable that was left in the environment may lead
        a worker to another docket than its application's."""
        if self.docket is not None and self.docket != docket.name:
            logger.warning("docket %r is used instead of %r of %s", self.docket, docket.name, self.app)
        if self.url is not None and self.url != docket.url:
            shown = hide_password(self.url), hide_password(docket.url)
            logger.warning("server %s is used instead of %s of %s", *shown, self.app)


def load_app(path: str) -> Docket:
    """The docket that `module:name` means. WrongUsage if it means something else."""
    found = load("--app", path)
    if not isinstance(found, Docket) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise WrongUsage(f"--app {path}: it raises {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(found):
        found.close()
    if not isinstance(found, Docket):
        raise WrongUsage(
            f"--app {path}: that is {type(found).__name__!r}; "
            "name a Docket that is not open, or a function that returns one"
        )
    if is_open(found):
        raise WrongUsage(f"--app {path}: that docket is open already; name one that is not")
    return found


def _option(name: str, help: str, *flags: str, **more: Any) -> Any:
    flags = flags or (f"--{name.replace('_', '-')}",)
    more.setdefault("envvar", ENVIRONMENT[name])
    return typer.Option(*flags, help=help, **more)


ENVIRONMENT = {
    "app": "DOCKET_APP",
    "docket": "DOCKET_NAME",
    "url": "DOCKET_URL",
    "execution_ttl": "DOCKET_EXECUTION_TTL",
    "heartbeat_interval": "DOCKET_HEARTBEAT_INTERVAL",
    "missed_heartbeats": "DOCKET_MISSED_HEARTBEATS",
    "max_payload": "DOCKET_MAX_PAYLOAD",
    "max_losses": "DOCKET_MAX_LOSSES",
    "add_patience": "DOCKET_ADD_PATIENCE",
    "result_storage": "DOCKET_RESULT_STORAGE",
    "credential_provider": "DOCKET_CREDENTIAL_PROVIDER",
}

_WHERE: dict[str, Any] = {
    "app": Annotated[
        str | None,
        _option(
            "app",
            "The application's docket, with its settings and tasks: a Docket that is not open, or a function that "
            "returns one. Other options go before its settings.",
            metavar="MODULE:NAME",
        ),
    ],
    "docket": Annotated[
        str | None,
        _option("docket", "The name of the docket.", "--docket", "-d", metavar="NAME", show_default=DEFAULT_DOCKET),
    ],
    "url": Annotated[
        str | None,
        _option(
            "url",
            "The server: redis://…, valkey://…, redis+cluster://…, redis+sentinel://…, or embedded:///folder, "
            "which needs none.",
            "--url",
            "-u",
            envvar=["DOCKET_URL", "DOCKET_REDIS_URL"],
            metavar="URL",
            show_default=DEFAULT_URL,
        ),
    ],
}


def _settings(*, hidden: bool) -> dict[str, Any]:
    """Commands that only look need few of these. They accept
    them all, since one environment serves all commands."""
    panel: dict[str, Any] = {"rich_help_panel": None if hidden else _PANEL}
    rare: dict[str, Any] = {**panel, "hidden": hidden}

    def length(name: str, help: str, default: str) -> Any:
        option = _option(name, help, parser=duration, metavar="DURATION", show_default=default, **rare)
        return Annotated[timedelta | None, option]

    def number(name: str, help: str, default: str) -> Any:
        return Annotated[
            int | None, _option(name, help, parser=positive, metavar="NUMBER", show_default=default, **rare)
        ]

    storage = _option(
        "result_storage", "Where results are stored, if not on the server.", metavar="MODULE:NAME", **rare
    )
    credentials = _option(
        "credential_provider", "Gives user name and password for the server.", metavar="MODULE:NAME", **panel
    )
    return {
        "execution_ttl": length("execution_ttl", "How long finished tasks are remembered.", "15m"),
        "heartbeat_interval": length("heartbeat_interval", "How often a worker shows that it lives.", "2s"),
        "missed_heartbeats": number("missed_heartbeats", "After so many without a sign of life it is dead.", "5"),
        "max_payload": number("max_payload", "How many bytes the arguments or the result may have.", "8388608"),
        "max_losses": number("max_losses", "A task that loses its worker so often is buried.", "3"),
        "add_patience": length("add_patience", "How long an add is repeated that cannot be written down.", "2s"),
        "result_storage": Annotated[str | None, storage],
        "credential_provider": Annotated[str | None, credentials],
    }


def on_docket(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command these options; it is called with
    the docket that they mean, not open, as `docket`."""
    return _with_options(command, lambda options: options.load(), hidden=True)


def on_server(command: Callable[..., R]) -> Callable[..., R]:
    """The same for a command that has a docket of its own, so that it takes no name."""
    return _with_options(command, lambda options: options.load(), hidden=True, where=("app", "url"))


def with_docket_options(command: Callable[..., R]) -> Callable[..., R]:
    """Gives a command these options; it is called with the DocketOptions as `docket`."""
    return _with_options(command, lambda options: options, hidden=False)


def _with_options(
    command: Callable[..., R],
    make: Callable[[DocketOptions], Docket | DocketOptions],
    *,
    hidden: bool,
    where: Iterable[str] = tuple(_WHERE),
) -> Callable[..., R]:
    settings = _settings(hidden=hidden)

    @functools.wraps(command)
    def run(**arguments: Any) -> R:
        options = DocketOptions(**{name: arguments.pop(name) for name in (*where, *settings)})
        return command(docket=make(options), **arguments)

    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "docket"
    ]
    places, rest = _parameters({name: _WHERE[name] for name in where}), _parameters(settings)
    # The parser reads both; a signature may name a
    # parameter only once, in any order if all are keywords.
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*places, *own, *rest])  # type: ignore[attr-defined]
    return run


def _parameters(options: dict[str, Any]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in options.items()
    ]
