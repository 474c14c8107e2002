"""Opening a docket from a command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from docket.cli.failures import CommandFailed, WrongUsage
from docket.docket import Docket
from docket.storage.urls import Kind, hide_password, parse

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Runs a command's work. Ctrl-C cancels it, so that whatever is open gets closed."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def opened(docket: Docket, *, must_exist: bool = True) -> AsyncGenerator[Docket]:
    """Opens the docket that a command works on. A command that only looks does not make a folder
    for a server to live in."""
    url = hide_password(docket.url)
    address = parse(docket.url)
    if address.kind is Kind.MEMORY:
        raise WrongUsage(
            f"--url {url}: memory:// is not supported by this command, since what is in it lives and dies inside one "
            "process; use redis://… to name a server, or embedded:///path/to/folder"
        )
    if must_exist and address.folder is not None and not address.folder.is_dir():
        raise CommandFailed(
            f"--url {url}: there is no folder {address.folder} yet; "
            "it is made by the first worker or producer that uses it"
        )
    # A command does not wait for its server.
    docket.server.entry_seconds = 0.0
    async with docket:
        yield docket
