"""`docket web`"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from docket.cli.support.connect import check_readable, run
from docket.cli.support.docket_options import on_docket
from docket.cli.support.failures import WrongUsage
from docket.cli.support.flags import whole_number
from docket.cli.support.output import printable
from docket.cli.support.terminal import quitting
from docket.docket import Docket
from docket.settings import settings_of
from docket.storage.client.urls import hide_password
from docket.web import Guard
from docket.web import app as dashboard
from docket.web.guards import UsersFile, hash_password
from docket.web.http_server import listen, serving

if TYPE_CHECKING:
    from starlette.applications import Starlette

app: typer.Typer = typer.Typer(add_completion=False)

LOOPBACK, PORT = "127.0.0.1", 8055
# The names of this machine for itself.
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

Host = Annotated[
    str,
    typer.Option(
        "--host",
        envvar="DOCKET_WEB_HOST",
        metavar="ADDRESS",
        help="The address to listen on. Others than this machine's own need --users-file or --no-guard.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        envvar="DOCKET_WEB_PORT",
        metavar="NUMBER",
        parser=whole_number(0, 65535),
        help="The port to listen on; 0 chooses a free one.",
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", envvar="DOCKET_WEB_READ_ONLY", help="Show everything and change nothing.")
]
Users = Annotated[
    Path | None,
    typer.Option(
        "--users-file",
        envvar="DOCKET_WEB_USERS_FILE",
        metavar="FILE",
        help="Ask for a password. The file has lines of name:role:password; roles are viewer, operator and admin.",
    ),
]
NoGuard = Annotated[
    bool,
    typer.Option(
        "--no-guard",
        envvar="DOCKET_WEB_NO_GUARD",
        help="Let in everybody who reaches the address: something in front of it asks for passwords.",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option("--also", envvar="DOCKET_WEB_ALSO", metavar="NAME", help="Another docket on the same server."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        envvar="DOCKET_WEB_ALLOW_HOST",
        metavar="NAME",
        help="A name in the browser's address bar, besides --host and localhost. With a guard, any name is allowed.",
    ),
]
RootPath = Annotated[
    str,
    typer.Option(
        "--root-path",
        envvar="DOCKET_WEB_ROOT_PATH",
        metavar="PATH",
        help="The path under which a proxy serves the dashboard, if the proxy removes it.",
    ),
]
TraceUrl = Annotated[
    str | None,
    typer.Option(
        "--trace-url",
        envvar="DOCKET_WEB_TRACE_URL",
        metavar="URL",
        help="Where your tracing system shows a trace: https://tracing.example/trace/{trace_id}",
    ),
]
HashPassword = Annotated[
    bool,
    typer.Option(
        "--hash-password",
        envvar="DOCKET_WEB_HASH_PASSWORD",
        help="Ask for a password, print its hash for --users-file, and end.",
    ),
]


@dataclass(frozen=True)
class ListenAddress:
    host: str
    port: int
    root_path: str


@app.command()
@on_docket
def web(
    docket: Docket,
    host: Host = LOOPBACK,
    port: Port = PORT,
    read_only: ReadOnly = False,
    users_file: Users = None,
    no_guard: NoGuard = False,
    also: Also = None,
    allow_host: AllowHost = None,
    root_path: RootPath = "",
    trace_url: TraceUrl = None,
    hash_password: HashPassword = False,
) -> None:
    """Look at a docket in a browser, and operate it.

    The dashboard shows what waits, runs and failed, and why, and has a REST API. It listens on this
    machine only, unless you name another address with --host, and then asks for passwords
    (--users-file). It also shows dockets whose server is away, and heals when the server is back.
    Ctrl-C stops it.
    """
    if hash_password:
        _print_hash()
        return
    guard = _guard(host, users_file, no_guard)
    hosts = None if guard is not None or no_guard else [*LOCAL_NAMES, host, *(allow_host or [])]
    dockets = [docket, *(_another(docket, name) for name in also or [])]
    prefix = f"/{root_path.strip('/')}" if root_path.strip("/") else ""
    try:
        application = dashboard(*dockets, guard=guard, read_only=read_only, hosts=hosts, trace_url=trace_url)
    except ValueError as error:
        raise WrongUsage(f"--trace-url: {error}") from None
    run(_serve(dockets, application, ListenAddress(host, port, prefix), read_only=read_only))


def _another(docket: Docket, name: str) -> Docket:
    settings: dict[str, Any] = {**settings_of(docket), "name": name}
    return Docket(**settings)


def _print_hash() -> None:
    password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    typer.echo(hash_password(password))


def _guard(host: str, users_file: Path | None, no_guard: bool) -> Guard | None:
    if users_file is not None:
        if no_guard:
            raise WrongUsage("--no-guard and --users-file contradict each other")
        try:
            return UsersFile(users_file)
        except (OSError, ValueError) as error:
            raise WrongUsage(f"--users-file: {getattr(error, 'strerror', None) or error}") from None
    if not no_guard and not is_local(host):
        raise WrongUsage(
            f"--host {host} lets other machines in, and they could change everything: ask for passwords with "
            "--users-file, or write --no-guard if something in front of the dashboard does"
        )
    return None


def is_local(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _serve(dockets: Sequence[Docket], application: Starlette, address: ListenAddress, *, read_only: bool) -> None:
    for docket in dockets:
        check_readable(docket)
    with listen(address.host, address.port) as listening:
        async with AsyncExitStack() as stack:
            stopped = asyncio.Event()
            stack.enter_context(quitting(stopped.set))
            for docket in dockets:
                await stack.enter_async_context(docket)
            await stack.enter_async_context(serving(application, listening, address.root_path))
            port = listening.getsockname()[1]
            typer.echo(printable(_announcement(dockets, web_url(address.host, port, address.root_path), read_only)))
            await stopped.wait()


def web_url(host: str, port: int, root_path: str = "") -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{root_path}/"


def _announcement(dockets: Sequence[Docket], url: str, read_only: bool) -> str:
    names = ", ".join(repr(docket.name) for docket in dockets)
    mode = ", read-only" if read_only else ""
    return f"The dashboard of docket {names} on {hide_password(dockets[0].url)} is at {url}{mode} (Ctrl-C stops it)"
