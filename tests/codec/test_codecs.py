"""A codec is a file and a line in a table: what it wrote
is read by its id, whichever codec writes today."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from docket.codec import codecs, envelope, open_envelope, seal
from docket.codec.codecs import CODECS, DEFAULT
from docket.errors import UnknownVersion


class JsonCodec:
    id = 77

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: memoryview | bytes) -> Any:
        return json.loads(bytes(data))


def test_codecs_have_ids_of_their_own() -> None:
    assert len({codec.id for codec in CODECS.values()}) == len(CODECS)


def test_the_stored_format_of_the_default_stays() -> None:
    assert DEFAULT == "pickle"
    assert {name: codec.id for name, codec in CODECS.items()} == {"pickle": 1}
    assert seal([1, "a"])[:3] == b"\x01\x01\x00"


def test_a_line_in_the_table_makes_a_codec_known_and_one_word_makes_it_write(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = seal([1, 2])
    try:
        with monkeypatch.context() as patch:
            patch.setitem(CODECS, "json", JsonCodec())
            patch.setattr(codecs, "DEFAULT", "json")
            importlib.reload(envelope)
            written = envelope.seal([1, 2])
            assert written == b"\x01\x4d\x00[1, 2]"
            assert [envelope.open_envelope(data) for data in (pickled, written)] == [[1, 2], [1, 2]]
    finally:
        importlib.reload(envelope)


def test_a_codec_that_is_not_in_the_table_is_of_a_newer_release() -> None:
    with pytest.raises(UnknownVersion, match="codec 77"):
        open_envelope(b"\x01\x4d\x00[1, 2]")
