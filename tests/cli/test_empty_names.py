"""A variable of the shell that is not set is an
empty text. It must not widen what a command does."""

from __future__ import annotations

import json

import pytest

from docket.testing.servers import ServerProcess

from .conftest import Command


@pytest.fixture
def url(redis_server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{redis_server.port}/6"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause", ""], "FUNCTION is empty"),
        (["resume", ""], "FUNCTION is empty"),
        (["strike", "", "customer", "==", "x"], "FUNCTION is empty"),
        (["pause", "trace", ""], "PARAMETER is empty"),
        (["strike", "trace", "", "==", "5"], "PARAMETER is empty"),
        (["restore", "trace", "", "==", "5"], "PARAMETER is empty"),
        (["strike", "trace", "*", "==", "5"], "VALUE '5' needs the name of a parameter"),
        (["clear", "--key", ""], "--key is empty"),
        (["clear", "--function", ""], "--function is empty"),
        (["dead", "discard", "--key-prefix", ""], "--key-prefix is empty"),
        (["dead", "discard", "--function", ""], "--function is empty"),
        (["dead", "discard", "--kind", ""], "--kind is empty"),
        (["dead", "retry", "--text", ""], "--text is empty"),
        (["dead", "retry", "--error", ""], "--error is empty"),
        (["dead", "retry", "--everything", "a-key"], "--everything is about all letters"),
        (["dead", "discard", "--everything", "--error", "ValueError"], "--everything is about all letters"),
        (["add", "trace", '"x"', "--in", "999999999d"], "--in: this is later than the last day"),
        (["add", "trace", '"x"', "--at", "0001-01-01T00:00+10:00"], "is not a time"),
    ],
)
def test_wrong_words_are_one_line_and_change_nothing(
    url: str, docket_command: Command, words: list[str], said: str
) -> None:
    docket_command("tasks", "trace", "hello", "--key", "waits", "--url", url)
    answer = docket_command(*words, "--url", url)
    assert answer.exit_code == 2
    assert said in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    seen = json.loads(docket_command("snapshot", "--json", "--url", url).stdout)
    assert [task["key"] for task in seen["tasks"]] == ["waits"]
    assert (seen["pauses"], seen["strikes"]) == ([], [])
