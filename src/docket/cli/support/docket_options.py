"""The options that select a command's docket and change its settings."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from docket.cli.support.failures import WrongUsage
from docket.cli.support.flags import Flag
from docket.cli.support.task_modules import load
from docket.docket import Docket
from docket.errors import DocketError
from docket.model.options import NAMED_OBJECT, Option, declared_options
from docket.settings import change_settings, is_open
from docket.storage.client.urls import hide_password

logger: logging.Logger = logging.getLogger("docket.worker")

R = TypeVar("R")

_PANEL = "Settings of the docket"
# The parameters that select a docket: every command shows them. It also shows those settings that
# it needs to reach the server and to read what is stored.
_SELECTION = ("app", "docket", "url", "url_file")
_NEEDED = ("credential_provider", "signing")


@dataclass(frozen=True)
class DocketOptions:
    """The options that select a docket and change its settings."""

    app: Annotated[
        str | None,
        Option(
            "The application's docket, with its settings and tasks: a Docket that is not open, or a function that "
            "returns one. The other options override its settings.",
            metavar=NAMED_OBJECT,
        ),
    ] = None
    url_file: Annotated[
        str | None,
        Option("A file with the URL, which may contain a password. --url takes precedence.", metavar="FILE"),
    ] = None
    # The settings that are given, as `Docket` declares them. The others are those of the
    # application or, without an application, the defaults.
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def with_url(self) -> DocketOptions:
        """These options with the URL that the file contains. Raises WrongUsage if it has none."""
        if self.url_file is None or "url" in self.settings:
            return replace(self, url_file=None)
        try:
            url = Path(self.url_file).read_text().strip()
        except (OSError, ValueError) as error:
            raise WrongUsage(f"--url-file {self.url_file}: {getattr(error, 'strerror', None) or error}") from None
        if not url:
            raise WrongUsage(f"--url-file {self.url_file}: it is empty; write the URL of the server into it")
        return replace(self, url_file=None, settings={**self.settings, "url": url})

    def environment(self) -> dict[str, str]:
        """The options as environment variables."""
        given = {**vars(self), **self.settings}
        return {
            flag.variables[0]: flag.as_text(given[name])
            for flag in docket_flags()
            if given.get(name := flag.declared.name) is not None
        }

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
        return {
            flag.declared.name: _read(flag, self.settings)
            for flag in docket_flags()
            if flag.declared.name in self.settings
        }

    def _warn_of_overrides(self, docket: Docket) -> None:
        """A forgotten environment variable can lead a worker
        to a docket other than its application's."""
        name, url = self.settings.get("name", docket.name), self.settings.get("url", docket.url)
        if name != docket.name:
            logger.warning("using docket %r instead of %r from %s", name, docket.name, self.app)
        if url != docket.url:
            shown = hide_password(url), hide_password(docket.url)
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


def docket_flags() -> list[Flag]:
    declared = {**declared_options(DocketOptions), **declared_options(Docket)}
    return [Flag(option, "DOCKET_") for option in declared.values()]


def _read(flag: Flag, settings: Mapping[str, Any]) -> Any:
    """The setting that the command line gives as text."""
    value, form = settings[flag.declared.name], flag.declared.option.metavar
    if form == NAMED_OBJECT:
        return load(flag.names[0], value)
    return value.replace(",", " ").split() if form == "KINDS" else value


def on_docket(command: Callable[..., R]) -> Callable[..., R]:
    """Adds these options to a command, which receives
    the docket that they select, not open, as `docket`."""
    return _with_options(command, lambda options: options.load(), hidden=True)


def on_server(command: Callable[..., R]) -> Callable[..., R]:
    """The options of a command that creates its own docket and so needs no name."""
    return _with_options(command, lambda options: options.load(), hidden=True, selected_by=("app", "url", "url_file"))


def with_docket_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds these options to a command, which receives the DocketOptions as `docket`."""
    return _with_options(command, lambda options: options, hidden=False)


def _with_options(
    command: Callable[..., R],
    make: Callable[[DocketOptions], Docket | DocketOptions],
    *,
    hidden: bool,
    selected_by: Iterable[str] = _SELECTION,
) -> Callable[..., R]:
    flags = {flag.parameter_name: flag for flag in docket_flags()}
    settings = {name: flag for name, flag in flags.items() if name not in _SELECTION}

    @functools.wraps(command)
    def run(**arguments: Any) -> R:
        given = {flags[name].declared.name: arguments.pop(name) for name in (*selected_by, *settings)}
        app, url_file = given.pop("app"), given.pop("url_file")
        options = DocketOptions(app, url_file, {name: value for name, value in given.items() if value is not None})
        return command(docket=make(options.with_url()), **arguments)

    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "docket"
    ]
    selection = [flags[name].parameter(is_optional=True) for name in selected_by]
    rest = [_setting(flag, hidden=hidden) for flag in settings.values()]
    # Typer reads annotations and signature. Only the signature counts here. All
    # its parameters are keywords, so that those with defaults may come first.
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*selection, *own, *rest])  # type: ignore[attr-defined]
    return run


def _setting(flag: Flag, *, hidden: bool) -> inspect.Parameter:
    """Commands that do not run tasks need few of these options. They accept all of them, because
    all commands share one environment."""
    return flag.parameter(
        is_optional=True,
        rich_help_panel=None if hidden else _PANEL,
        hidden=hidden and flag.declared.name not in _NEEDED,
    )
