"""The shell blocks of a page that is not a story
(pages.py), run line by line in a folder with a shop.

* A line that ends is run with a server of its own, and has to exit with 0. `docket` runs in this
  process: it takes a second to start otherwise.
* A program that goes on is started, has to say that it is ready, and has to end after SIGINT.
* `NOT_RUN` says why a command is not run. What can be checked without running it is checked: that the
  target of `make` exists, and that a program has the options.
* A command that is neither is a mistake of the page, or new to this list.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis
from typer.testing import CliRunner

from docket import Docket, Worker
from docket.cli import app
from tests.examples.pages import EXAMPLES, ROOT, SERVER, Block, blocks
from tests.waiting import SECONDS, eventually_blocking

SHOP = Path(__file__).with_name("shop_folder")
# Pages that are about one of the services in examples/ are run in its folder.
FOLDERS = {
    "fastapi.md": EXAMPLES / "web_service",
    "flask.md": EXAMPLES / "flask_service",
    "django.md": EXAMPLES / "django_service",
}
NOT_RUN = {
    "kubectl": "needs a cluster of Kubernetes",
    "pip": "installs from a registry",
    "make": "takes minutes",
    "for": "takes hours",
    "docket demo": "takes twenty seconds; tests/cli runs it",
    "python -m bench": "takes minutes",
    "python -m chaos": "takes minutes",
}
# A program that goes on, and what it says when it is ready.
GOES_ON = {
    "docket worker": "Starting worker",
    "docket top": "workers",
    "docket web": "http://",
    "gunicorn": "Booting worker",
    "uvicorn": "startup complete",
    "python -m docket.testing.servers": "://",
}
WEB_PORT = "8055"
USERS_FILE = "/etc/docket/users"
# An id that is cut short on the page, and the command that lists the real ones.
IDS = {
    "docket strikes remove": ("docket strikes ls --json", "id"),
    "docket resume --id": ("docket held --json", "id"),
    "docket dead discard --kind": ("docket dead ls --kinds --json", "id"),
}

# What was done before a page begins.
BEFORE = {"payloads.md": "docket pause send_mail customer == acme"}


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "sh" and block.why_not is None]


def lines(block: Block) -> Iterator[str]:
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.strip():
            yield line.strip()


def known(command: str, names: dict[str, str]) -> str | None:
    return next((names[name] for name in names if re.match(rf"{re.escape(name)}(?=\s|$)", command)), None)


@dataclass
class Shop:
    """A folder with the code that the commands load, a server, and tasks in the states that a page
    speaks of."""

    page: Path
    folder: Path
    server: str
    environment: dict[str, str] = field(default_factory=dict)
    running: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def run(self) -> None:
        own = FOLDERS.get(self.page.name)
        shutil.copytree(own or SHOP, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        port = free_port()
        (self.folder / "users").write_text("ann:admin:correct horse battery staple\n", "utf-8")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DOCKET_")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "DOCKET_URL": self.server,
            "DOCKET_WEB_PORT": str(port),
            "UVICORN_PORT": str(free_port()),
            "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{free_port()}",
            **({} if own else {"DOCKET_APP": "shop.app:docket"}),
        }
        with in_folder(self.folder, self.environment):
            try:
                before = BEFORE.get(self.page.name)
                if before:
                    self._line(before, before)
                for block in shell_blocks(self.page):
                    if "curl" not in block.text and not before:
                        self._begin_again()
                    for line in lines(block):
                        self._line(line.replace(WEB_PORT, str(port)), f"{self.page.name}:{block.line}: {line}")
            finally:
                self._stop()

    def _begin_again(self) -> None:
        """Each block has a docket of its own: it does
        not meet the strikes and workers of another."""
        self._stop()
        with redis.Redis.from_url(self.server) as client:
            client.flushall()

    def _line(self, line: str, where: str) -> None:
        command = shlex.join(shlex.split(line, comments=True))
        if known(command, NOT_RUN):
            check_unrun(command, where)
            return
        if "redis-7" in command and not shutil.which("redis-server"):
            return
        command = command.replace(SERVER, self.server).replace(USERS_FILE, str(self.folder / "users"))
        if (ready := known(command, GOES_ON)) and "--until-finished" not in command:
            self._start(os.path.expandvars(command), ready, where)
        elif command.startswith("export "):
            return
        elif command.startswith("docket "):
            if not FOLDERS.get(self.page.name):
                asyncio.run(self._prepare(command))
            self._docket(self._with_id(command), where)
        elif command.startswith("curl "):
            done = subprocess.run(
                ["bash", "-c", f"{command} --fail --silent --show-error"], capture_output=True, check=False
            )
            assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"
        else:
            raise AssertionError(f"{where}: is not a command that this test knows")

    def _docket(self, command: str, where: str) -> str:
        for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
            del sys.modules[name]
        done = CliRunner().invoke(app, shlex.split(os.path.expandvars(command))[1:], input="y\n")
        assert done.exit_code == 0, f"{where}\n{done.output}\n{done.exception!r}"
        return done.output

    def _with_id(self, command: str) -> str:
        for prefix, (listing, name) in IDS.items():
            if command.startswith(prefix):
                ids = re.findall(rf'"{name}": "([^"]+)"', self._docket(listing, listing))
                return f"{prefix} {ids[0]}"
        return command

    async def _prepare(self, command: str) -> None:
        """The tasks and dead letters that the commands name. `dead` is about letters alone: a task
        under the same key would keep them from being retried."""
        tasks = importlib.import_module("shop.tasks")

        async with Docket("shop", self.server) as docket:
            for function in tasks.tasks:
                docket.register(function)
            if "docket dead" not in command:
                for key in ("order-7", "order-8"):
                    await docket.add(tasks.send_mail, key=key, when=docket.now())(7)
                await docket.add(tasks.ship, key="ship-8")("order-8")
                return
            for pause in await docket.pauses():
                await docket.resume(pause)
            await docket.clear()
            letters = [letter.key async for letter in docket.dead.find()]
            os.environ["MAIL_SERVER_IS_DOWN"] = "yes"
            for key in ("order-7", "order-8"):
                if key not in letters:
                    await docket.add(tasks.send_mail, key=key)(7)
            if "download" not in letters:
                await docket.add(tasks.download, key="download")("https://example.com")
            async with Worker(docket) as worker:
                await worker.run_until_finished()
            del os.environ["MAIL_SERVER_IS_DOWN"]

    def _start(self, command: str, ready: str, where: str) -> None:
        log = self.folder / f"program-{len(self.running)}.log"
        if command.startswith("docket web"):
            self._stop()  # it has one port
        with log.open("wb") as output:
            started = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                env={**os.environ, **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append((started, log))
        eventually_blocking(
            lambda: ready in log.read_text() or started.poll() is not None, "it starts", seen=log.read_text
        )
        assert started.poll() is None, f"{where}\n{log.read_text()}"

    def _stop(self) -> None:
        running, self.running = self.running, []
        for process, _ in running:
            process.send_signal(signal.SIGINT)
        for process, log in running:
            assert process.wait(SECONDS) in {0, 130, -signal.SIGINT}, log.read_text()


def check_unrun(command: str, where: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), where
    elif words[:2] == ["python", "-m"]:
        help_text = subprocess.run(
            [sys.executable, *words[1:3], "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for option in (word for word in words if word.startswith("--")):
            assert option in help_text.stdout, f"{where}: has no option {option}"


@contextmanager
def in_folder(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    before, path, kept = Path.cwd(), list(sys.path), dict(os.environ)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ.update(environment)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(kept)
        for name in [name for name in sys.modules if name.split(".")[0] in {"shop", "app", "tasks"}]:
            del sys.modules[name]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
