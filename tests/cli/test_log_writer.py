"""The log of a worker is written in batches, and no line is lost that could have been written."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest

from docket import Docket
from docket.cli.support import logs
from docket.cli.support.logs import Format, Level, LogLines, LogWriter, PlainLines, logging_to_stdout
from docket.tasks import trace

from .conftest import Start
from .processes import surroundings

pytestmark = pytest.mark.timeout(600)


def python(source: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def messages(output: str) -> list[str]:
    return [line.rpartition(": ")[2] for line in output.splitlines()]


TASKS = 3_000


async def waiting_after(url: str, first: bool) -> int:
    """How many tasks wait, after the first ones were added."""
    async with Docket("docket", url) as docket:
        if first:
            await docket.add_many([docket.call(trace)("x") for _ in range(TASKS)])
        return (await docket.snapshot()).total_tasks


def test_no_line_is_missing_after_a_sigterm(url: str, start: Start) -> None:
    asyncio.run(waiting_after(url, first=True))
    worker = start("worker", "--url", url, "--logging-format", "json", "--concurrency", "20")
    worker.says("↩")
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0

    lines = [json.loads(line) for line in worker.lines]
    runs = TASKS - asyncio.run(waiting_after(url, first=False))
    assert runs > 0
    assert sum(line["message"].startswith("↪") for line in lines) == runs
    assert sum(line["message"].startswith("↩") for line in lines) == runs
    times = [line["timestamp"] for line in lines]
    assert times == sorted(times)


def test_no_line_is_missing_after_an_exception_that_ends_the_process() -> None:
    with python(
        """
        import logging
        from docket.cli.support.logs import Format, Level, logging_to_stdout
        with logging_to_stdout(Level.INFO, Format.PLAIN):
            for number in range(1000):
                logging.info("%d", number)
            raise RuntimeError("the end")
        """
    ) as process:
        output, errors = process.communicate()
    assert process.returncode == 1
    assert "RuntimeError: the end" in errors
    assert messages(output) == [str(number) for number in range(1000)]


def test_no_line_is_missing_if_the_handler_is_never_closed() -> None:
    with python(
        """
        import logging, sys
        from docket.cli.support.logs import LogLines, PlainLines
        logging.getLogger().addHandler(LogLines(sys.stdout, PlainLines()))
        for number in range(1000):
            logging.warning("%d", number)
        sys.exit(3)
        """
    ) as process:
        output, _ = process.communicate()
    assert process.returncode == 3
    assert messages(output) == [str(number) for number in range(1000)]


def test_a_slow_reader_gets_every_line() -> None:
    with python(
        """
        import logging
        from docket.cli.support.logs import Format, Level, logging_to_stdout
        with logging_to_stdout(Level.INFO, Format.PLAIN):
            for number in range(20_000):
                logging.info("%d", number)
        """
    ) as process:
        assert process.stdout is not None
        seen: list[str] = []
        while piece := process.stdout.read(8192):
            seen.append(piece)
        assert process.wait() == 0
    assert messages("".join(seen)) == [str(number) for number in range(20_000)]


def test_a_child_of_a_fork_does_not_repeat_the_lines_of_its_parent() -> None:
    with python(
        """
        import logging, os
        from docket.cli.support.logs import Format, Level, logging_to_stdout
        with logging_to_stdout(Level.INFO, Format.PLAIN):
            logging.info("before")
            child = os.fork()
            logging.info("in the child" if child == 0 else "in the parent")
            if child:
                os.waitpid(child, 0)
        """
    ) as process:
        output, errors = process.communicate()
    assert errors == ""
    assert sorted(messages(output)) == ["before", "in the child", "in the parent"]


FORKING = """
    import logging, multiprocessing, os
    from docket.cli.support.logs import Format, Level, logging_to_stdout

    def body(number):
        logging.info("child %d", number)
        print("printed", number)

    with logging_to_stdout(Level.INFO, Format.PLAIN):
        for number in range(20):
            logging.info("parent %d", number)
            {fork}
    """
FORKS = {
    "os._exit": """
            pid = os.fork()
            if not pid:
                body(number)
                os._exit(0)
            os.waitpid(pid, 0)""",
    "multiprocessing": """
            child = multiprocessing.get_context("fork").Process(target=body, args=(number,))
            child.start()
            child.join()""",
    "exec": """
            pid = os.fork()
            if not pid:
                body(number)
                os.execvp("true", ["true"])
            os.waitpid(pid, 0)""",
}


@pytest.mark.parametrize("fork", FORKS)
def test_the_lines_of_forked_processes_are_written_however_they_end(fork: str) -> None:
    with python(FORKING.format(fork=FORKS[fork])) as process:
        output, errors = process.communicate()
    assert errors == ""
    expected = [f"{who} {number}" for number in range(20) for who in ("child", "parent", "printed")]
    assert sorted(messages(output)) == sorted(expected)


def test_no_line_of_the_log_comes_between_the_pieces_of_a_printed_line(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stdout(Level.INFO, Format.PLAIN):
        print("printed", end=" ")
        logging.info("logged")
        print("to the end")
        print("never ended", end="")
    assert messages(capfd.readouterr().out) == ["logged", "printed to the end", "never ended"]


def test_an_unfinished_line_is_written_when_it_is_flushed(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stdout(Level.INFO, Format.PLAIN):
        print("begun", end="", flush=True)
        logging.info("logged")
    assert capfd.readouterr().out.startswith("begun")


# A reader that has stopped


class StuckStream:
    """A stream whose writes wait until somebody reads."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.reader: TextIO = os.fdopen(reading, encoding="utf-8")
        self.writer: TextIO = os.fdopen(writing, "w", encoding="utf-8")


@pytest.fixture
def stuck() -> Generator[StuckStream]:
    stream = StuckStream()
    yield stream
    stream.reader.close()


async def test_the_event_loop_never_waits_for_a_reader(stuck: StuckStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 100_000)
    writer = LogWriter(stuck.writer, lambda count: f"{count} are missing\n")

    for number in range(50_000):
        writer.write(f"{number:09d}\n")

    # Nobody has read a byte until here.
    written, missing = 0, 0
    while written + missing < 50_000:
        line = stuck.reader.readline()
        if line.endswith("are missing\n"):
            missing += int(line.split()[0])
        else:
            assert line == f"{written + missing:09d}\n"
            written += 1
    assert written > 0
    assert missing > 0


def test_a_thread_waits_a_while_and_then_drops_its_line(stuck: StuckStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 1_000)
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", 0.01)
    handler = LogLines(stuck.writer, PlainLines())
    record = logging.LogRecord("a.logger", logging.INFO, __file__, 1, "x" * 500, (), None)

    for _ in range(300):
        handler.emit(record)

    written, missing = 0, 0
    while written + missing < 300:
        logger, text = stuck.reader.readline()[24:].split(": ", 1)
        if logger == "WARNING docket.log":
            missing += int(text.split()[0])
        else:
            written += 1
    assert missing > 0


def test_lines_of_the_last_moment_are_written_when_the_log_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stdout(Level.INFO, Format.PLAIN):
        logging.info("the last %s", "line")
    assert messages(capsys.readouterr().out) == ["the last line"]


def test_printed_text_keeps_its_place_between_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stdout(Level.INFO, Format.PLAIN):
        for number in range(100):
            logging.info("logged %d", number)
            print("printed", number, flush=number % 2 == 0)
    expected = [text for number in range(100) for text in (f"logged {number}", f"printed {number}")]
    assert messages(capsys.readouterr().out) == expected


def test_a_reader_that_has_stopped_does_not_keep_the_log_from_ending(
    stuck: StuckStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LAST_PATIENCE_SECONDS", 0.1)
    writer = LogWriter(stuck.writer, lambda count: f"{count} are missing\n")
    for number in range(50_000):
        writer.write(f"{number:09d}\n")

    writer.flush()
    writer.flush()

    # The lines are not lost if somebody reads after all.
    assert [stuck.reader.readline() for _ in range(50_000)] == [f"{number:09d}\n" for number in range(50_000)]


def test_a_process_ends_although_nobody_reads_its_log() -> None:
    with python(
        """
        import logging
        from docket.cli.support import logs
        from docket.cli.support.logs import Format, Level, logging_to_stdout
        logs.LAST_PATIENCE_SECONDS = 0.1
        with logging_to_stdout(Level.INFO, Format.PLAIN):
            for number in range(20_000):
                logging.info("%d", number)
        """
    ) as process:
        assert process.wait() == 0


class FullDisk:
    """A disk that has room for some bytes."""

    def __init__(self, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = room
        self._write = os.write
        monkeypatch.setattr("docket.cli.support.logs.os.write", self.write)

    def write(self, file: int, data: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._write(file, data[: self.room])
        self.room -= count
        return count


def test_lines_that_a_full_disk_did_not_take_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(0, monkeypatch)
    with (tmp_path / "log").open("w", encoding="utf-8") as file:
        writer = LogWriter(file, lambda count: f"{count} are missing\n")
        writer.write("1234567\n")
        writer.flush()
        writer.write("abcdefgh\n")
        writer.flush()
        disk.room = 1_000
        writer.write("the next line\n")
        writer.flush()
    assert (tmp_path / "log").read_text().splitlines() == ["2 are missing", "the next line"]


def test_a_line_that_a_full_disk_has_cut_does_not_reach_into_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(5, monkeypatch)
    with (tmp_path / "log").open("w", encoding="utf-8") as file:
        writer = LogWriter(file, lambda count: f"{count} are missing\n")
        writer.write("1234567890\n")
        writer.flush()
        disk.room = 1_000
        writer.write("the next line\n")
        writer.flush()
    assert (tmp_path / "log").read_text().splitlines() == ["12345", "1 are missing", "the next line"]


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_worker_whose_standard_streams_are_closed_works(url: str, closed: str) -> None:
    asyncio.run(waiting_after(url, first=True))
    command = f"exec {sys.executable} -m docket worker --url {url} --until-finished --concurrency 50 {closed}"
    assert subprocess.run(["sh", "-c", command], env=surroundings()).returncode == 0
    assert asyncio.run(waiting_after(url, first=False)) == 0
