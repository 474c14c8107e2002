"""What a user reads when something is wrong: one line, and an exit code that means something."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import Result

from tests.waiting import eventually_blocking

from .conftest import Command, Start, unused_port

CLOSED = f"redis://localhost:{unused_port()}/0"

LOOKING = [["snapshot"], ["watch", "key"], ["workers", "ls"], ["workers", "for-task", "trace"], ["top"], ["clear"]]
CHANGING = [["strike", "trace"], ["restore", "trace"], ["tasks", "trace"], ["tasks", "fail"], ["tasks", "sleep"]]


def the_line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.output
    return result.stderr


@pytest.mark.parametrize("arguments", [*LOOKING, *CHANGING, ["bench"], ["worker", "--wait", "0s"]], ids=" ".join)
def test_a_server_that_is_not_there_is_named_and_a_way_out_is_shown(
    arguments: list[str], docket_command: Command
) -> None:
    line = the_line(docket_command(*arguments, "--url", CLOSED), 1)
    assert CLOSED in line
    assert "embedded:///" in line


@pytest.mark.parametrize("arguments", [*LOOKING, *CHANGING], ids=" ".join)
def test_memory_is_refused_where_nothing_could_be_in_it(arguments: list[str], docket_command: Command) -> None:
    line = the_line(docket_command(*arguments, "--url", "memory://"), 2)
    assert "memory:// is not supported by this command" in line
    assert "in one process only" in line
    assert "use redis://" in line


@pytest.mark.parametrize("arguments", [*LOOKING, *CHANGING, ["bench"], ["worker"]], ids=" ".join)
def test_a_url_of_no_known_kind_is_wrong_usage(arguments: list[str], docket_command: Command) -> None:
    assert "use one of redis://" in the_line(docket_command(*arguments, "--url", "rediss+nonsense://x"), 2)


@pytest.mark.parametrize(
    "url", ["nonsense", "redis://[bad", "redis://h:port/0", "redis+sentinel://h:x/m", "redis://h?db=x"]
)
def test_a_url_that_cannot_be_read_is_wrong_usage(url: str, docket_command: Command) -> None:
    assert "--url" in the_line(docket_command("snapshot", "--url", url), 2)


def test_a_password_is_never_shown(docket_command: Command) -> None:
    url = f"redis://user:s3cret@localhost:{unused_port()}/0"
    assert "s3cret" not in docket_command("snapshot", "--url", url).output
    assert "s3cret" not in docket_command("snapshot", "--url", url.replace("redis:", "what:")).output


@pytest.mark.parametrize("arguments", LOOKING[:-1], ids=" ".join)
def test_looking_into_a_folder_that_is_not_there_makes_none(
    arguments: list[str], folder: Path, docket_command: Command
) -> None:
    line = the_line(docket_command(*arguments, "--url", f"embedded://{folder}/typo"), 1)
    assert f"the folder {folder}/typo does not exist" in line
    assert not (folder / "typo").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["worker", "--concurrency", "x"], "'x' is not a whole number"),
        (["worker", "--concurrency", "0"], "at least 1"),
        (["worker", "--processes", "-1"], "at least 1"),
        (["worker", "--redelivery-timeout", "soon"], "'soon' is not a duration"),
        (["worker", "--redelivery-timeout", "0s"], "longer than 0s"),
        (["worker", "--grace-period", "-5s"], "'-5s' is not a duration"),
        (["worker", "--healthcheck-port", "99999"], "at most 65535"),
        (["worker", "--metrics-port", "http"], "'http' is not a whole number"),
        (["worker", "--logging-level", "loud"], "'loud' is not one of"),
        (["worker", "--logging-format", "xml"], "'xml' is not one of"),
        (["worker", "--url", "memory://", "--processes", "2"], "each process has its own memory://"),
        (["worker", "--bogus"], "no such option: --bogus"),
        (["worker", "surplus"], "surplus"),
        (["tasks", "sleep", "x"], "'x' is not a duration"),
        (["tasks", "trace", "--delay", "x"], "'x' is not a duration"),
        (["snapshot", "--limit", "0"], "at least 1"),
        (["snapshot", "--state", "done"], "'done' is not one of"),
        (["snapshot", "--after", "?"], "copy it from the end of the previous page"),
        (["watch"], "missing argument"),
        (["watch", "key", "--timeout", "x"], "'x' is not a duration"),
        (["top", "--interval", "1ms"], "at least 50ms"),
        (["top", "--count", "0"], "at least 1"),
        (["strike"], "name a function"),
        (["strike", "f", "p"], "needs an operator and a value"),
        (["strike", "f", "p", "=="], "needs an operator and a value"),
        (["strike", "f", "p", "~", "5"], "'~' is not one of"),
        (["strike", "f", "p", "==", "int:x"], "'x' is not a valid int"),
        (["strike", "f", "p", "between", "int:5"], "is not a range"),
        (["bench", "--tasks", "many"], "'many' is not a whole number"),
        (["demo", "--for", "1s"], "at least 2s"),
        (["workers", "for-task"], "missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_value_is_one_line_that_names_it(arguments: list[str], words: str, docket_command: Command) -> None:
    assert words in the_line(docket_command(*arguments), 2).lower()


@pytest.fixture
def broken_modules(folder: Path, shop: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules in the current folder. What this process
    imports of them is forgotten after the test."""
    (folder / "numbers_only.py").write_text("tasks = [1, 2]\n")
    (folder / "generator.py").write_text("def work(): yield\ntasks = [work]\n")
    (folder / "wrong_syntax.py").write_text("tasks = [\ndef\n")
    (folder / "raises.py").write_text("tasks = []\n1 / 0\n")
    (folder / "imports.py").write_text("import not_installed\n")
    (folder / "value_error.py").write_text("tasks = int('x')\n")
    (folder / "attribute.py").write_text("import os\nos.nothing\n")
    (folder / "exits.py").write_text("raise SystemExit(0)\n")
    (folder / "contradiction.py").write_text(
        "from docket import Retry\nasync def twice(a=Retry(), b=Retry()): pass\ntasks = [twice]\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(Path.cwd()))])
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if (folder / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ("nowhere:tasks", "there is no module 'nowhere'"),
        ("shop.deep:tasks", "there is no module 'shop.deep'"),
        ("shop.py:tasks", "name the module, not its file: shop:tasks"),
        ("src/shop.py:tasks", "name the module, not its file: src.shop:tasks"),
        ("shop:nothing", "module 'shop' has no 'nothing'"),
        ("shop:taks", "module 'shop' has no 'taks'; did you mean 'tasks'?"),
        ("shop", "write module:name"),
        ("shop:", "write module:name"),
        ("shop:ship", "this is not a collection"),
        ("numbers_only:tasks", "cannot be a task"),
        ("generator:tasks", "generator.work is a generator, so it cannot be a task"),
        ("wrong_syntax:tasks", "wrong_syntax.py, line 1: SyntaxError"),
        ("raises:tasks", "raises.py, line 2: ZeroDivisionError: division by zero"),
        ("imports:tasks", "ModuleNotFoundError: No module named 'not_installed'"),
        ("value_error:tasks", "value_error.py, line 1: ValueError"),
        ("attribute:tasks", "attribute.py, line 2: AttributeError"),
        ("exits:tasks", "exits.py, line 1: SystemExit"),
        ("contradiction:tasks", "twice"),
    ],
)
def test_tasks_that_cannot_be_loaded_are_one_line_that_says_where(
    tasks: str, words: str, broken_modules: None, docket_command: Command
) -> None:
    assert words in the_line(docket_command("worker", "--url", "memory://", "--tasks", tasks), 2)


@pytest.mark.parametrize("tasks", ["raises:tasks", "exits:tasks"])
def test_a_process_whose_tasks_cannot_be_loaded_says_that_line_and_ends(
    tasks: str, broken_modules: None, start: Start
) -> None:
    worker = start("worker", "--url", "memory://", "--tasks", tasks)
    assert worker.ends() == 2, worker.output
    assert worker.output.count("\n") == 1, worker.output


def test_two_functions_of_one_name_in_the_tasks_are_one_line_that_names_both(folder: Path, start: Start) -> None:
    for module in ("mail", "sms"):
        (folder / f"{module}.py").write_text("async def send(): pass\ntasks = [send]\n")
    worker = start("worker", "--url", "memory://", "--tasks", "mail:tasks", "--tasks", "sms:tasks")
    assert worker.ends() == 2, worker.output
    assert worker.output.count("\n") == 1, worker.output
    assert "--tasks sms:tasks: two functions have the name 'send': mail.send" in worker.output
    assert "sms.send" in worker.output


def test_a_fallback_that_is_no_function_is_refused(shop: str, start: Start) -> None:
    worker = start("worker", "--url", "memory://", "--fallback-task", shop)
    assert worker.ends() == 2
    assert worker.output == "docket: --fallback-task shop:tasks: this is not a function\n"


def test_a_port_in_use_is_one_line(start: Start, port: int) -> None:
    first = start("worker", "--url", "memory://", "--healthcheck-port", str(port))
    first.says("Starting worker")
    second = start("worker", "--url", "memory://", "--healthcheck-port", str(port), "--no-banner")
    assert second.ends() == 1
    assert second.output.count("\n") == 1, second.output
    assert f"cannot serve health on 0.0.0.0:{port}" in second.output


def test_a_reader_that_leaves_early_is_no_error(url: str, start: Start, docket_command: Command) -> None:
    for number in range(5):
        docket_command("tasks", "trace", "--url", url, "--delay", "1h", "--key", f"later-{number}")
    reader = start("snapshot", "--url", url)
    reader.ends()
    assert "Traceback" not in reader.output


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.parametrize("arguments", [["snapshot"], ["watch", "key"], ["top"], ["worker"], ["bench"]], ids=" ".join)
def test_ctrl_c_ends_what_waits_for_a_silent_server(arguments: list[str], silent_server: str, start: Start) -> None:
    command = start(*arguments, "--url", silent_server)
    eventually_blocking(lambda: psutil.Process(command.pid).net_connections(), "it has connected")
    command.send(signal.SIGINT)
    assert command.ends() == 130
    assert command.output == ""


def test_a_silent_server_is_given_up_in_the_end(silent_server: str, start: Start) -> None:
    command = start("snapshot", "--url", silent_server)
    assert command.ends() == 1
    assert command.output.count("\n") == 1, command.output
    assert silent_server in command.output


def test_a_worker_waits_for_a_server_that_is_not_there_and_then_gives_up(start: Start) -> None:
    worker = start("worker", "--url", CLOSED, "--wait", "1s", "--no-banner")
    assert worker.ends() == 1
    waits, gives_up = worker.output.splitlines()
    assert "trying again until the server is back" in waits
    assert gives_up.startswith("docket: ")
    assert CLOSED in gives_up


def test_how_long_a_worker_waits_may_be_said_in_the_environment(start: Start) -> None:
    worker = start("worker", "--url", CLOSED, DOCKET_WORKER_WAIT="0s")
    assert worker.ends() == 1
    assert worker.output.count("\n") == 1, worker.output
