"""The code blocks of a page, run as a reader would run them, from the page itself.

* A block with a title (` ```python title="tasks.py" `) is a file in a folder of the page.
* A shell block runs in that folder, line by line. A title that begins with "a second terminal" starts a
  program that goes on; it ends with the page.
* A `text` block after a program or a shell block is its output: each line has to occur, in order; `…`
  stands for anything.
* Other Python blocks run one after the other in one namespace, with `docket`, an open docket, whose
  worker runs beside them. `preambles/<page>.py` defines the names that the page takes for granted,
  and `prepare(docket)`, which runs before each block.
* `<!-- not run: why -->` before a block says why it cannot run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
import textwrap
import types
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from docket import Docket, Worker
from tests.waiting import SECONDS, eventually_blocking

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PREAMBLES = Path(__file__).with_name("preambles")
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]*) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]*)\")?[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
# Commands that need the network or a clone, or never end.
NOT_HERE = ("git ", "pip ", "python3 -m venv", ". ../shop-env", "mkdir ", "make ", "docker ", "kubectl ")
SERVER = "redis://localhost:6379/0"
ANY_SERVER = re.compile(r"redis(?:\+sentinel)?://(?:localhost:6379/0|…)")


@dataclass(frozen=True)
class Block:
    language: str
    title: str | None
    text: str
    line: int
    why_not: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            found["language"],
            found["title"],
            textwrap.dedent(found["text"]),
            text.count("\n", 0, found.start("text")) + 1,
            found["why"],
        )
        for found in BLOCK.finditer(text)
    ]


def is_an_example(block: Block) -> bool:
    """The block is shown from a file in examples/, which the tests run."""
    code = block.text.strip()
    return any(code in path.read_text("utf-8") for path in EXAMPLES.rglob("*.py"))


@dataclass
class Story:
    """A page whose blocks are files and commands."""

    page: Path
    folder: Path
    server: str
    output: str = ""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def tell(self) -> None:
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PYTHONWARNINGS": "default",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        }
        try:
            for block in blocks(self.page):
                if block.why_not is None:
                    self._block(block)
        finally:
            self._stop()

    def _block(self, block: Block) -> None:
        where = f"{self.page.name}:{block.line}"
        text = block.text.replace(SERVER, self.server)
        if block.language == "sh" and (block.title or "").startswith("a second terminal"):
            self._start(text)
        elif block.language == "sh":
            self.output = self._run(text, where)
        elif block.language == "text":
            assert_output(block.text, self.output, where)
        elif block.title:
            (self.folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.title).write_text(text, "utf-8")

    def _run(self, text: str, where: str) -> str:
        lines = [line for line in text.splitlines() if not line.startswith(NOT_HERE)]
        if any(line.startswith("export DOCKET_URL=") for line in lines):
            self._stop()  # the page tells the reader to stop what runs
        # The variables that a block sets stay for the next one, as in a terminal.
        script = "\n".join(["set -e", *lines, f"env -0 > {self.folder}/.environment"])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{where}:\n{text}\n{done.stdout}\n{done.stderr}"
        kept = (self.folder / ".environment").read_text().split("\0")
        self.environment = dict(entry.split("=", 1) for entry in kept if "=" in entry)
        return done.stdout

    def _start(self, text: str) -> None:
        *settings, command = [line for line in text.strip().splitlines() if not line.startswith(NOT_HERE)]
        log = self.folder / "second-terminal.log"
        with log.open("wb") as output:
            started = subprocess.Popen(
                ["bash", "-c", "\n".join([*settings, f"exec {command}"])],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append(started)
        eventually_blocking(
            lambda: "Starting worker" in log.read_text() or started.poll() is not None, "it starts", seen=log.read_text
        )
        assert started.poll() is None, log.read_text()

    def _stop(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0, (self.folder / "second-terminal.log").read_text()
        self.running.clear()


def assert_output(expected: str, output: str, where: str) -> None:
    at = 0
    for line in expected.strip().splitlines():
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        found = re.search(pattern, output[at:])
        assert found, f"{where}: {line!r} is not in the output:\n{output}"
        at += found.end()


def snippets(page: Path) -> Iterator[Block]:
    for block in blocks(page):
        if block.language == "python" and not block.title and block.why_not is None and not is_an_example(block):
            yield block


@contextmanager
def _surroundings() -> Generator[None]:
    """Whatever the page and its preambles add to the environment and to the modules is gone after
    it. Modules that were imported from a file stay."""
    known = set(sys.modules)
    with patch.dict(os.environ):
        try:
            yield
        finally:
            for name in set(sys.modules) - known:
                if sys.modules[name].__spec__ is None:
                    del sys.modules[name]


async def run_snippets(page: Path, folder: Path) -> None:
    """All Python blocks of a page without a title, in one namespace."""
    with _surroundings():
        await _run_snippets(page, folder)


async def _run_snippets(page: Path, folder: Path) -> None:
    name = page.stem if page.parent.name in {"docs", ROOT.name} else f"{page.parent.name}_{page.stem}"
    name = name.lower().replace("-", "_")
    module = sys.modules["__page__"] = types.ModuleType("__page__")  # pickle looks for its classes there
    namespace = vars(module)
    for preamble in (PREAMBLES / "common.py", PREAMBLES / f"{name}.py"):
        if preamble.exists():
            exec(compile(preamble.read_text("utf-8"), str(preamble), "exec"), namespace)
    docket = Docket(name=namespace.get("NAME", f"page-{name}"), url=f"memory://page-{name}")
    async with docket, Worker(docket, name="the worker of the page") as worker:
        working = asyncio.create_task(worker.run_forever())
        try:
            for block in snippets(page):
                # A snippet may show how to make a docket, which is not open.
                namespace |= {"docket": docket, "worker": worker, "url": docket.url}
                if prepare := namespace.get("prepare"):
                    await prepare(docket)
                await _run_snippet(block, page, namespace, folder)
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


async def _run_snippet(block: Block, page: Path, namespace: dict[str, Any], folder: Path) -> None:
    where = f"{page.name}:{block.line}"
    if "asyncio.run(" in block.text:
        program = folder / f"program{block.line}.py"
        program.write_text(block.text, "utf-8")
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, str(program)], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"{where}:\n{done.stdout}\n{done.stderr}"
        return
    text = ANY_SERVER.sub(namespace["url"], block.text)
    code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        if namespace.get("IN_A_THREAD"):
            await asyncio.to_thread(eval, code, namespace)
            return
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            async with asyncio.timeout(SECONDS):
                await result
    except Exception as error:
        error.add_note(f"in {where}")
        raise
