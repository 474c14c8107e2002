"""The options that select a command's docket and change its settings."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from docket.cli.failures import WrongUsage
from docket.cli.support.flags import duration, positive
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
    """The settings of a docket on the command line. None keeps the setting of the application or,
    without an application, the default."""

    app: str | None = None
    docket: str | None = None
    url: str | None = None
    url_file: Path | None = None
    execution_ttl: timedelta | None = None
    heartbeat_interval: timedelta | None = None
    missed_heartbeats: int | None = None
    max_payload: int | None = None
    max_losses: int | None = None
    keep_failures: timedelta | None = None
    pickled_strikes: bool | None = None
    add_patience: timedelta | None = None
    durability: str | None = None
    durability_timeout: timedelta | None = None
    result_storage: str | None = None
    credential_provider: str | None = None
    codec: str | None = None
    accept: str | None = None
    signing_keys_file: str | None = None
    encrypt: bool | None = None

    def with_url(self) -> DocketOptions:
        """The same options, with the URL that the file
        contains. Raises WrongUsage if it has none."""
        if self.url_file is None or self.url is not None:
            return replace(self, url_file=None)
        try:
            url = self.url_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise WrongUsage(f"--url-file {self.url_file}: {getattr(error, 'strerror', None) or error}") from None
        if not url:
            raise WrongUsage(f"--url-file {self.url_file}: it is empty; write the URL of the server into it")
        return replace(self, url=url, url_file=None)

    def load(self) -> Docket:
        """Returns the docket, not open. Raises WrongUsage if it cannot be loaded or if a setting is
        not valid."""
        changes = self._changes()
        try:
            if self.app is None:
                return Docket(**changes)
            docket = load_app(self.app)
            if changes:
                self._warn_of_overrides(docket)
                change_settings(docket, **changes)
            return docket
        except DocketError:
            raise
        except ValueError as error:
            raise WrongUsage(str(error)) from error

    def _changes(self) -> dict[str, Any]:
        given = {
            field.name: getattr(self, field.name)
            for field in fields(DocketOptions)
            if field.name not in ("app", "url_file")
        }
        given["name"] = given.pop("docket")
        changes = {name: value for name, value in given.items() if value is not None}
        if "accept" in changes:
            changes["accept"] = changes["accept"].replace(",", " ").split()
        if "signing_keys_file" in changes:
            changes["signing"] = changes.pop("signing_keys_file")
        for name in _OBJECTS:
            if name in changes:
                changes[name] = load(f"--{name.replace('_', '-')}", changes[name])
        return changes

    def _warn_of_overrides(self, docket: Docket) -> None:
        """A forgotten environment variable can lead a worker
        to a docket other than its application's."""
        if self.docket is not None and self.docket != docket.name:
            logger.warning("using docket %r instead of %r from %s", self.docket, docket.name, self.app)
        if self.url is not None and self.url != docket.url:
            shown = hide_password(self.url), hide_password(docket.url)
            logger.warning("using server %s instead of %s from %s", *shown, self.app)


def load_app(path: str) -> Docket:
    """Loads the docket `module:name`. Raises WrongUsage if it is not a docket."""
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
            f"--app {path}: this is of type {type(found).__name__!r}; "
            "name a Docket that is not open, or a function that returns one"
        )
    if is_open(found):
        raise WrongUsage(f"--app {path}: this docket is already open; name a Docket that is not open")
    return found


def _option(name: str, help: str, *flags: str, **more: Any) -> Any:
    flags = flags or (f"--{name.replace('_', '-')}",)
    more.setdefault("envvar", ENVIRONMENT[name])
    return typer.Option(*flags, help=help, **more)


ENVIRONMENT = {
    "app": "DOCKET_APP",
    "docket": "DOCKET_NAME",
    "url": "DOCKET_URL",
    "url_file": "DOCKET_URL_FILE",
    "execution_ttl": "DOCKET_EXECUTION_TTL",
    "heartbeat_interval": "DOCKET_HEARTBEAT_INTERVAL",
    "missed_heartbeats": "DOCKET_MISSED_HEARTBEATS",
    "max_payload": "DOCKET_MAX_PAYLOAD",
    "max_losses": "DOCKET_MAX_LOSSES",
    "keep_failures": "DOCKET_KEEP_FAILURES",
    "pickled_strikes": "DOCKET_PICKLED_STRIKES",
    "add_patience": "DOCKET_ADD_PATIENCE",
    "durability": "DOCKET_DURABILITY",
    "durability_timeout": "DOCKET_DURABILITY_TIMEOUT",
    "result_storage": "DOCKET_RESULT_STORAGE",
    "credential_provider": "DOCKET_CREDENTIAL_PROVIDER",
    "codec": "DOCKET_CODEC",
    "accept": "DOCKET_ACCEPT",
    "signing_keys_file": "DOCKET_SIGNING_KEYS_FILE",
    "encrypt": "DOCKET_ENCRYPT",
}

_SELECTION: dict[str, Any] = {
    "app": Annotated[
        str | None,
        _option(
            "app",
            "The application's docket, with its settings and tasks: a Docket that is not open, or a function that "
            "returns one. The other options override its settings.",
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
            "The server: redis://…, valkey://…, redis+cluster://… or redis+sentinel://…; or embedded:///folder, "
            "which needs no server.",
            "--url",
            "-u",
            envvar=["DOCKET_URL", "DOCKET_REDIS_URL"],
            metavar="URL",
            show_default=DEFAULT_URL,
        ),
    ],
    "url_file": Annotated[
        Path | None,
        _option(
            "url_file",
            "A file with the URL, which may contain a password. --url takes precedence.",
            metavar="FILE",
            show_default=False,
        ),
    ],
}


def _settings(*, hidden: bool) -> dict[str, Any]:
    """Commands that do not run tasks need few of these options. They
    accept all of them, because all commands share one environment."""
    panel: dict[str, Any] = {"rich_help_panel": None if hidden else _PANEL}
    rare: dict[str, Any] = {**panel, "hidden": hidden}

    def length(name: str, help: str, default: str) -> Any:
        option = _option(name, help, parser=duration, metavar="DURATION", show_default=default, **rare)
        return Annotated[timedelta | None, option]

    def number(name: str, help: str, default: str) -> Any:
        return Annotated[
            int | None, _option(name, help, parser=positive, metavar="NUMBER", show_default=default, **rare)
        ]

    storage = _option("result_storage", "Store results here instead of on the server.", metavar="MODULE:NAME", **rare)
    credentials = _option(
        "credential_provider", "Provides the user name and password for the server.", metavar="MODULE:NAME", **panel
    )
    durability = _option(
        "durability",
        "Where a task has to be stored before an add returns: on the primary, or on a replica as well.",
        metavar="primary|replica",
        show_default="primary",
        **rare,
    )
    return {
        "execution_ttl": length("execution_ttl", "Keep finished tasks and their results for this long.", "15m"),
        "heartbeat_interval": length("heartbeat_interval", "The time between two heartbeats of a worker.", "2s"),
        "missed_heartbeats": number(
            "missed_heartbeats", "A worker counts as dead after missing this many heartbeats.", "5"
        ),
        "max_payload": number(
            "max_payload", "The largest size of the arguments or of the result, in bytes.", "8388608"
        ),
        "max_losses": number("max_losses", "A task whose worker dies this many times becomes a dead letter.", "3"),
        "keep_failures": length("keep_failures", "Keep tasks that failed for good for this long; 0 keeps none.", "7d"),
        "add_patience": length("add_patience", "Retry an add for this long while the server fails.", "2s"),
        "durability": Annotated[str | None, durability],
        "durability_timeout": length(
            "durability_timeout", "How long an add waits for a replica, with --durability replica.", "1s"
        ),
        "result_storage": Annotated[str | None, storage],
        "credential_provider": Annotated[str | None, credentials],
        **_payload_settings(panel, rare),
    }


def _payload_settings(panel: dict[str, Any], rare: dict[str, Any]) -> dict[str, Any]:
    """How payloads are sealed, and which are opened."""
    pickled = _option(
        "pickled_strikes",
        "Pickle the values of strikes. Whoever writes to the server can then run code here.",
        "--pickled-strikes/--no-pickled-strikes",
        show_default="False",
        **rare,
    )
    codec = _option(
        "codec", "How arguments and results are stored: pickle or json.", metavar="NAME", show_default="pickle", **rare
    )
    accept = _option(
        "accept",
        "Also read payloads of these kinds, separated by commas: pickle, json, unsigned.",
        metavar="KINDS",
        **rare,
    )
    keys = _option(
        "signing_keys_file",
        "Sign payloads with the first key of this file (lines of id:base64), and refuse what no key of it signed.",
        metavar="FILE",
        **panel,
    )
    encrypt = _option("encrypt", "Encrypt payloads with the signing key.", "--encrypt/--no-encrypt", **rare)
    return {
        "pickled_strikes": Annotated[bool | None, pickled],
        "codec": Annotated[str | None, codec],
        "accept": Annotated[str | None, accept],
        "signing_keys_file": Annotated[str | None, keys],
        "encrypt": Annotated[bool | None, encrypt],
    }


def on_docket(command: Callable[..., R]) -> Callable[..., R]:
    """Adds these options to a command, which receives
    the docket that they select, not open, as `docket`."""
    return _with_options(command, lambda options: options.load(), hidden=True)


def on_server(command: Callable[..., R]) -> Callable[..., R]:
    """The same for a command that creates its own docket and so needs no name."""
    return _with_options(command, lambda options: options.load(), hidden=True, selected_by=("app", "url", "url_file"))


def with_docket_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds these options to a command, which receives the DocketOptions as `docket`."""
    return _with_options(command, lambda options: options, hidden=False)


def _with_options(
    command: Callable[..., R],
    make: Callable[[DocketOptions], Docket | DocketOptions],
    *,
    hidden: bool,
    selected_by: Iterable[str] = tuple(_SELECTION),
) -> Callable[..., R]:
    settings = _settings(hidden=hidden)

    @functools.wraps(command)
    def run(**arguments: Any) -> R:
        options = DocketOptions(**{name: arguments.pop(name) for name in (*selected_by, *settings)}).with_url()
        return command(docket=make(options), **arguments)

    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "docket"
    ]
    selection, rest = _parameters({name: _SELECTION[name] for name in selected_by}), _parameters(settings)
    # Typer reads annotations and signature. Only the signature counts here. All
    # its parameters are keywords, so that those with defaults may come first.
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*selection, *own, *rest])  # type: ignore[attr-defined]
    return run


def _parameters(options: dict[str, Any]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in options.items()
    ]
