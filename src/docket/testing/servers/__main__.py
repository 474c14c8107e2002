"""`python -m docket.testing.servers KIND`: starts servers, prints their URL, and stays until
Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from docket.errors import DocketError

from . import KINDS, ServerGroup, find_binaries, servers_of


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # A signal of a service manager ends the servers as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with servers_of(options.kind, binary=options.binary, tls=options.tls, acl=options.acl) as group:
            _describe(group)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except DocketError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _describe(group: ServerGroup) -> None:
    print(group.url, flush=True)
    for server in group.servers:
        print(f"  {server.url}  (pid {server.pid}, {server.binary.name}, {server.folder})", file=sys.stderr)
    print("Ctrl-C ends them and removes their data.", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(binary.name for binary in find_binaries()) or "none"
    parser = argparse.ArgumentParser(
        prog="python -m docket.testing.servers",
        description="Starts servers for tests, prints the URL for a docket, and stays until Ctrl-C. "
        "It prints the URL to stdout and the single servers to stderr.",
    )
    parser.add_argument("kind", choices=list(KINDS), help="which servers to start")
    parser.add_argument("--binary", help=f"a path, or the beginning of a name; this machine has {names}")
    parser.add_argument("--tls", action="store_true", help="with TLS and a certificate for localhost")
    parser.add_argument("--acl", action="store_true", help="with a user and a password; the default user is off")
    return parser


if __name__ == "__main__":
    sys.exit(main())
