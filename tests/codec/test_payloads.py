"""Payloads: what is sealed comes out as it went in, and what cannot be read is Undecodable."""

from __future__ import annotations

import pickle
import sys
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

from docket.codec import Payloads
from docket.codec.codecs import CODEC_IDS, codec_named
from docket.errors import TaskFailed, Undecodable, UnknownVersion, Unserializable
from docket.model.states import ExecutionState

PAYLOADS = Payloads()
RUN = ("key", 7, ExecutionState.COMPLETED)
FAILED_RUN = ("key", 7, ExecutionState.FAILED)


@pytest.mark.parametrize(
    "value", [None, 10**30, "grüße", b"\x00\xff", {"a": [1, (2,)]}, datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_a_result_comes_out_of_its_envelope_as_it_went_in(value: Any) -> None:
    assert PAYLOADS.open_result(*RUN, None, PAYLOADS.seal_result(*RUN, None, value)) == value


def test_a_function_without_a_name_goes_by_value() -> None:
    sealed = PAYLOADS.seal_result(*RUN, None, lambda number: number + 1)

    assert PAYLOADS.open_result(*RUN, None, sealed)(2) == 3


def test_a_call_keeps_its_arguments_and_its_trace() -> None:
    data = PAYLOADS.seal_call("key", "f", None, (1, "a"), {"b": None}, {"traceparent": "00-1-2-01"})

    assert PAYLOADS.open_call("key", "f", None, data) == ((1, "a"), {"b": None}, {"traceparent": "00-1-2-01"})


def test_an_argument_that_cannot_be_packed_is_named() -> None:
    with pytest.raises(Unserializable, match="letters"):
        PAYLOADS.seal_call("key", "f", None, (), {"number": 1, "letters": (letter for letter in "abc")})


def test_an_error_keeps_its_type_and_its_message() -> None:
    error = PAYLOADS.open_error(*FAILED_RUN, PAYLOADS.seal_error(*FAILED_RUN, ValueError("smoke")))

    assert type(error) is ValueError
    assert str(error) == "smoke"


def test_an_error_that_cannot_be_packed_becomes_a_failed_task_with_its_message() -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("not me")

    error = PAYLOADS.open_error(*FAILED_RUN, PAYLOADS.seal_error(*FAILED_RUN, Stubborn("stuck")))

    assert isinstance(error, TaskFailed)
    assert "stuck" in str(error)


def test_a_stored_exit_is_read_as_an_ordinary_error() -> None:
    error = PAYLOADS.open_error(*FAILED_RUN, PAYLOADS.seal_result(*RUN, None, SystemExit(3)))

    assert isinstance(error, TaskFailed)
    assert str(error) == "SystemExit: 3"


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x01\x00", b"\x01\x01\x00nonsense"])
def test_data_that_is_not_an_envelope_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        PAYLOADS.open_result(*RUN, None, data)
    with pytest.raises(Undecodable):
        PAYLOADS.open_error(*FAILED_RUN, data)
    with pytest.raises(Undecodable):
        PAYLOADS.open_call("key", "f", None, b"\0\0" + data)


@pytest.mark.parametrize(
    "header", [b"\x09\x01\x00", b"\x01\x4d\x00", b"\x01\x01\x40"], ids=["version", "codec", "flags"]
)
def test_an_envelope_of_a_newer_release_is_of_an_unknown_version(header: bytes) -> None:
    sealed = PAYLOADS.seal_result(*RUN, None, 1)

    with pytest.raises(UnknownVersion):
        PAYLOADS.open_result(*RUN, None, header + sealed[3:])


def test_the_stored_format_of_the_default_stays() -> None:
    assert CODEC_IDS["pickle"] == 1
    assert PAYLOADS.seal_call("key", "f", None, (), {}) == b"\0\0\x01\x01\x00)}\x94\x86\x94."
    assert PAYLOADS.seal_result(*RUN, None, 1)[:4] == b"\x01\x01\x00\x80"


@pytest.mark.parametrize("size", [0, 1, 500, 990, 1000, 1010, 1020, 1030, 5000, 70_000, 200_000])
def test_short_calls_are_stored_without_the_beginning_of_their_pickle(size: int) -> None:
    args, kwargs = ("x" * size, b"y" * size, list(range(size // 10))), {"more": {"z" * size}}
    sealed = PAYLOADS.seal_call("key", "f", None, args, kwargs)
    assert PAYLOADS.open_call("key", "f", None, sealed) == (args, kwargs, {})
    if size == 0:
        assert pickle.FRAME not in sealed[5:]


def test_a_call_that_was_stored_with_the_beginning_of_its_pickle_is_read() -> None:
    whole = b"\0\0\x01\x01\x00" + pickle.dumps(((1, "two"), {"three": 3}), protocol=5)
    assert PAYLOADS.open_call("key", "f", None, whole) == ((1, "two"), {"three": 3}, {})


def test_a_module_with_a_name_of_python_2_is_still_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = ModuleType("commands")
    exec("class Order:\n    pass", vars(commands))
    monkeypatch.setitem(sys.modules, "commands", commands)
    sealed = PAYLOADS.seal_call("key", "f", None, (commands.Order(),), {})
    (order,), _, _ = PAYLOADS.open_call("key", "f", None, sealed)
    assert type(order) is commands.Order


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'yaml' is not a codec: use one of 'pickle'"):
        codec_named("yaml")
