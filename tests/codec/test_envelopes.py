"""Payloads: what goes into an envelope comes out of it, and what cannot be read is Undecodable."""

from datetime import UTC, datetime
from typing import Any

import pytest

from docket.codec import (
    decode_call,
    decode_error,
    decode_result,
    encode_call,
    encode_error,
    encode_result,
    open_envelope,
    seal,
)
from docket.errors import TaskFailed, Undecodable, UnknownVersion, Unserializable


@pytest.mark.parametrize(
    "value", [None, 10**30, "grüße", b"\x00\xff", {"a": [1, (2,)]}, datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_a_value_comes_out_of_its_envelope_as_it_went_in(value: Any) -> None:
    assert open_envelope(seal(value)) == value
    assert decode_result(encode_result(value)) == value


def test_a_function_without_a_name_goes_by_value() -> None:
    assert open_envelope(seal(lambda number: number + 1))(2) == 3


def test_a_call_keeps_its_arguments_and_its_trace() -> None:
    data = encode_call((1, "a"), {"b": None}, {"traceparent": "00-1-2-01"})

    assert decode_call(data) == ((1, "a"), {"b": None}, {"traceparent": "00-1-2-01"})


def test_an_argument_that_cannot_be_packed_is_named() -> None:
    with pytest.raises(Unserializable, match="letters"):
        encode_call((), {"number": 1, "letters": (letter for letter in "abc")})


def test_an_error_keeps_its_type_and_its_message() -> None:
    error = decode_error(encode_error(ValueError("smoke")))

    assert type(error) is ValueError
    assert str(error) == "smoke"


def test_an_error_that_cannot_be_packed_becomes_a_failed_task_with_its_message() -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("not me")

    error = decode_error(encode_error(Stubborn("stuck")))

    assert isinstance(error, TaskFailed)
    assert "stuck" in str(error)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x01\x00", b"\x01\x01\x00nonsense"])
def test_data_that_is_not_an_envelope_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        open_envelope(data)


def test_an_envelope_of_a_newer_release_is_of_an_unknown_version() -> None:
    with pytest.raises(UnknownVersion):
        open_envelope(b"\x09" + seal(1)[1:])
