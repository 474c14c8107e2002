"""The payloads of a docket with the default settings, for tests that write records themselves."""

from __future__ import annotations

from typing import Any

from docket.codec import Payloads

PAYLOADS = Payloads()


def encode_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    return PAYLOADS.seal_call("k", "f", None, args, kwargs)


def decode_call(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str]]:
    return PAYLOADS.open_call("k", "f", None, data)
