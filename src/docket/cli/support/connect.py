"""Opens a docket for a command, and runs the command in an event loop."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from docket.cli.support.failures import CommandFailed, WrongUsage
from docket.docket import Docket
from docket.ledger.audit import acting_as, process_actor
from docket.storage.client.urls import ServerKind, hide_password, parse

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Runs the coroutine of a command. Ctrl-C cancels it, so that it closes its docket."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def opened(docket: Docket, *, must_exist: bool = True) -> AsyncGenerator[Docket]:
    """Opens the docket of a command. With `must_exist`, an embedded docket must have its folder
    already: a command that only reads must not create one."""
    check_readable(docket, must_exist=must_exist)
    # A command fails at once if the server is unreachable.
    docket.server.entry_seconds = 0.0
    with acting_as(process_actor().who, "cli"):
        async with docket:
            yield docket


def check_readable(docket: Docket, *, must_exist: bool = True) -> None:
    """Raises an error for a docket that this process cannot share with its workers."""
    url = hide_password(docket.url)
    address = parse(docket.url)
    if address.kind is ServerKind.MEMORY:
        raise WrongUsage(
            f"--url {url}: memory:// is not supported by this command, because its tasks exist in one process only; "
            "use redis://… for a server, or embedded:///path/to/folder"
        )
    if must_exist and address.folder is not None and not address.folder.is_dir():
        raise CommandFailed(
            f"--url {url}: the folder {address.folder} does not exist; "
            "the first worker or producer that uses it creates it"
        )


def has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


def loop_factory(wanted: bool | None = None) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's factory if uvloop is installed and not switched off, else None."""
    if wanted is False or not has_uvloop():
        return None
    return importlib.import_module("uvloop").new_event_loop
