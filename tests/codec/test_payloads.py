"""Payloads: what is sealed comes out as it went in, and what cannot be read is Undecodable."""

from __future__ import annotations

from datetime import UTC, datetime
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
    assert PAYLOADS.seal_call("key", "f", None, (), {})[:6] == b"\0\0\x01\x01\x00\x80"
    assert PAYLOADS.seal_result(*RUN, None, 1)[:4] == b"\x01\x01\x00\x80"


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'yaml' is not a codec: use one of 'pickle'"):
        codec_named("yaml")
