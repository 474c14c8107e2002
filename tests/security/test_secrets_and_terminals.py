"""Passwords are never shown, and texts of users do not control a terminal."""

import asyncio
import io
import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from docket import Docket, TooLong
from docket.cli import app
from docket.cli.support.logs import Format, Level, SafeLines, logging_to_stdout
from docket.errors import UnknownScheme
from docket.model.texts import as_json_line
from docket.storage.client.urls import hide_password, parse
from tests.running import run_everything

URLS = [
    "redis://user:hunter2@host:6379/0",
    "redis://user:hun/ter2@host:6379/0",
    "redis://user:hun?ter2@host/0",
    "redis://user:hun#ter2@host/0",
    "redis://:hunter2@host:port/0",
    "redis://user:hunter2@[::1/0",
    "redis://user:hunter2@host/zero",
    "redis+sentinel://user:hunter2@/service",
    "redis+sentinel://user:hunter2@host:one/service",
    "redis://host/0?password=hunter2",
    "redis://host:x/0?sentinel_password=hun@ter2&password=hunter2",
    "user:hunter2@host:6379",
    "redis:/user:hunter2@host",
    "http://user:hunter2@host",
    "redis://user:pass:hunter2@host@hunter2@host",
]


@pytest.mark.parametrize("url", URLS)
def test_passwords_of_malformed_urls_are_not_shown(url: str) -> None:
    shown = [hide_password(url)]
    try:
        parse(url)
    except UnknownScheme as error:
        shown.append(str(error))
    result = CliRunner().invoke(app, ["snapshot", "--url", url, "--wait", "0s"] if "host" not in url else ["version"])
    shown.append(result.output)
    for text in shown:
        assert "ter2" not in text


def test_a_url_without_a_password_is_shown_as_it_is() -> None:
    for url in ("redis://localhost:6379/0", "memory://name", "unix:///tmp/socket?db=1", "redis://user@host"):
        assert hide_password(url) == url


async def command(*words: str, **environment: str) -> Result:
    """`docket …`, in a thread, because it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, words, env=environment)


async def test_the_url_can_come_from_a_file(tmp_path: Path) -> None:
    secret, url = tmp_path / "url", f"embedded://{tmp_path}/data"
    secret.write_text(f"{url}\n")
    async with Docket("docket", url) as docket:
        await docket.strike("found")
        result = await command("snapshot", DOCKET_URL_FILE=str(secret))
        assert "found" in result.output
    result = CliRunner().invoke(app, ["snapshot", "--url-file", str(tmp_path / "missing")])
    assert result.exit_code == 2
    assert "missing" in result.output
    secret.write_text("")
    result = CliRunner().invoke(app, ["snapshot", "--url-file", str(secret)])
    assert result.exit_code == 2


HOSTILE = "\x1b]0;owned\x07\x1b[2J\n2026-01-01 00:00:00 ERROR forged line\u202egnp.exe\u2066\x9b31m"


async def test_hostile_names_do_not_control_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys, names of functions, workers, strikes and messages, in every command and in the logs."""

    async def task() -> None:
        raise ValueError(HOSTILE)

    url = f"embedded://{tmp_path}/data"
    async with Docket("docket", url) as docket:
        docket.register(task, names=["name" + HOSTILE])
        await docket.strike("name" + HOSTILE, "parameter" + HOSTILE, "==", "value" + HOSTILE)
        await docket.add("name" + HOSTILE, key="key" + HOSTILE)()
        with logging_to_stdout(Level.DEBUG, Format.PLAIN):
            await run_everything(docket, name="worker" + HOSTILE)
        with logging_to_stdout(Level.DEBUG, Format.JSON):
            await docket.add("name" + HOSTILE, key="again" + HOSTILE)()
            await run_everything(docket)
        await docket.add("name" + HOSTILE, key="waits" + HOSTILE, when=docket.now().replace(year=2999))()
    outputs = [capsys.readouterr().out]
    for words in (["snapshot"], ["snapshot", "--json"], ["strikes", "ls"], ["watch", "key" + HOSTILE], ["clear"]):
        outputs.append((await command(*words, "--url", url)).output)
    for output in outputs:
        assert "forged line" in output or "Removed" in output
        for character in "\x1b\x07\u202e\u2066\x9b":
            assert character not in output
    assert not any(line.startswith("2026-01-01 00:00:00") for line in outputs[0].splitlines() if "name\\x1b" in line)


def test_json_output_is_json_even_with_hostile_names() -> None:
    text = as_json_line({"key": HOSTILE + "\U000e0001"})
    assert json.loads(text) == {"key": HOSTILE + "\U000e0001"}
    assert text.isprintable()


async def test_what_is_too_long_is_refused(docket: Docket) -> None:
    async def task() -> None: ...

    for key in ("k" * 1_025, "ü" * 513):
        with pytest.raises(TooLong, match="the key has"):
            await docket.add(task, key=key)()
    await docket.add(task, key="k" * 1_024)()
    with pytest.raises(TooLong, match="name of the function"):
        docket.register(task, names=["n" * 1_025])
    execution = await docket.add(task, key="p")()
    with pytest.raises(TooLong, match="message of the progress"):
        await execution.progress.set_message("m" * 8_193)
    with pytest.raises(TooLong, match="message of the progress"):
        await execution.progress.update(message="m" * 8_193)
    (failed,) = await docket.add_many([docket.call(task, key="k" * 2_000)()])
    assert isinstance(failed.schedule_exception, TooLong)


def test_plain_lines_keep_their_line_breaks() -> None:
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(SafeLines("%(message)s"))
    record = logging.LogRecord("x", logging.INFO, "", 0, "first\n\tsecond\x1b[2J", (), None)
    assert handler.format(record) == "first\n\tsecond\\x1b[2J"
