"""Processes that are forked from an interpreter which has imported docket already.

Most of the time that a process of docket takes in a test is the time of its imports. Each test
process has one warm interpreter, without threads. It forks for each `python -m …` that a test
starts; the child takes the arguments, the environment, the folder and the output of its own, and
runs the module. A test whose subject is the start of a program uses `subprocess` instead, and so
does every test on a system without `pidfd_open`.

`python -P tests/warm_interpreter.py <socket>` is the interpreter.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Protocol

MODULES = ("docket.cli", "docket.cli.support.run_worker", "docket.worker", "typer._adapters", "rich.console")
_LONGEST_REQUEST = 1 << 20
_FILES = 2


class Running(Protocol):
    """The part of `subprocess.Popen` that tests use."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


def start_module(
    module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: IO[bytes]
) -> Running:
    """`python -P -m module …`, without an input, and with its output in a file."""
    if not hasattr(os, "pidfd_open"):
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Forked(module, arguments, cwd, env, output)


@cache
def _interpreter(process: int) -> tuple[socket.socket, Running]:
    """The warm interpreter of this test process, and the line
    to it. The interpreter ends when the line is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        interpreter = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(_end, process, ours, interpreter)
    return ours, interpreter


def _end(process: int, line: socket.socket, interpreter: Running) -> None:
    if process == os.getpid():
        line.shutdown(socket.SHUT_RDWR)
        interpreter.wait()
    line.close()


class Forked:
    """A process that the warm interpreter has forked."""

    def __init__(
        self, module: str, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], output: IO[bytes]
    ) -> None:
        line, _ = _interpreter(os.getpid())
        request = {"module": module, "arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}
        self._status, status = os.pipe()
        try:
            files = array.array("i", [output.fileno(), status])
            line.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        finally:
            os.close(status)
        answer = line.recv(64)
        assert answer, "the warm interpreter has ended"
        self.pid = int(answer)
        self._exit_code: int | None = None
        try:
            self._handle: int | None = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._handle = None  # it has ended already

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        if self._exit_code is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            code = os.read(self._status, 64)
            assert code, "the warm interpreter has ended"
            self._exit_code = int(code)
            self._close()
        return self._exit_code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None and self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, sig)

    def _close(self) -> None:
        os.close(self._status)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


# The interpreter


def serve(line: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns the request in
    the child, and None when the line is closed."""
    selector = selectors.DefaultSelector()
    selector.register(line, selectors.EVENT_READ)
    children: set[tuple[int, int]] = set()
    while True:
        for key, _ in selector.select():
            if key.fileobj is line:
                request, (output, status) = _receive(line)
                if request is None:
                    return None
                assert threading.active_count() == 1, threading.enumerate()
                pid = os.fork()
                if not pid:
                    selector.close()
                    for other in (status, *itertools.chain(*children)):
                        os.close(other)
                    _become(request, output)
                    return request
                os.close(output)
                handle = os.pidfd_open(pid)
                children.add((handle, status))
                selector.register(handle, selectors.EVENT_READ, (pid, status))
                line.send(str(pid).encode())
            else:
                pid, status = key.data
                _, code = os.waitpid(pid, 0)
                selector.unregister(key.fileobj)
                os.close(key.fd)
                children.discard((key.fd, status))
                with contextlib.suppress(BrokenPipeError):
                    os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
                os.close(status)


def _receive(line: socket.socket) -> tuple[dict[str, Any] | None, Sequence[int]]:
    data, files, _, _ = socket.recv_fds(line, _LONGEST_REQUEST, _FILES)
    return (json.loads(data), files) if data else (None, (-1, -1))


def _become(request: dict[str, Any], output: int) -> None:
    """Makes this process what the request asks for, up to the start of its module."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["env"].get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)  # pyright: ignore[reportAttributeAccessIssue]
    sys.path[:0] = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = [request["module"], *request["arguments"]]


def _main() -> dict[str, Any] | None:
    import gc
    import importlib

    os.environ.pop("PYTHONPATH", None)
    for module in MODULES:
        importlib.import_module(module)
    # A collection in a child would write to every page that it shares with this process.
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as line:
        return serve(line)


if __name__ == "__main__" and (request := _main()):
    import runpy

    # At the end of this file, so that the child ends like any interpreter.
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
