"""Scripts and Python read the same key from a stream entry."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from docket.ledger.deliveries import entry_key
from docket.storage.scripts import assemble

HEAD = "-- A test.\n-- uses: entries\n"
ENTRY_KEY = assemble("entry_key", f"{HEAD}return entry_key({{ARGV[1], ARGV[2]}})").source
DIGITS = assemble("digits", f"{HEAD}return digits_of_bytes()[tonumber(ARGV[1])]").source


def test_scripts_and_python_print_the_same_text(any_client: Any) -> None:
    """Each digit at each position."""
    drawn = random.Random(7)
    for value in (*(bytes([digit * 17]) * 16 for digit in range(16)), *(drawn.randbytes(16) for _ in range(200))):
        text = str(uuid.UUID(bytes=value)).encode()
        fields = b"u" + text[:9], value[4:]
        assert any_client.eval(ENTRY_KEY, 0, *fields) == entry_key(fields) == text
    assert any_client.eval(ENTRY_KEY, 0, b"k", b"any") == entry_key((b"k", b"any")) == b"any"


def test_the_table_has_the_digits_of_every_byte(any_client: Any) -> None:
    assert [any_client.eval(DIGITS, 0, n) for n in range(256)] == [b"%02x" % n for n in range(256)]


@pytest.mark.parametrize(
    "fields",
    [
        (b"u01a1eed1-", b"short"),
        (b"u01a1eed1-", b"x" * 13),
        (b"u01a1eed1", b"x" * 12),
        (b"U01a1eed1-", b"x" * 12),
        (b"u01A1EED1-", b"x" * 12),
        (b"u01a-eed1-", b"x" * 12),
        (b"user_email", b"bob@mail.com"),
    ],
)
def test_other_fields_are_not_dockets(any_client: Any, fields: tuple[bytes, bytes]) -> None:
    assert entry_key(fields) is None
    assert any_client.eval(ENTRY_KEY, 0, *fields) is None


READ = assemble(
    "read",
    "-- A test.\n-- uses: entries, claims\n"
    "local raw, read, one_by_one = {}, no_entries(), {}\n"
    "for i = 1, #ARGV, 2 do\n"
    "  raw[#raw + 1] = {i .. '-0', {ARGV[i], ARGV[i + 1]}}\n"
    "  one_by_one[#raw] = entry_key(raw[#raw][2]) or ''\n"
    "end\n"
    "add_entries(read, STREAM, raw)\n"
    "return {read.keys, one_by_one}",
).source


@pytest.mark.parametrize("count", [1, 3, 4, 60])
def test_entries_that_are_read_together_have_the_keys_of_single_ones(any_client: Any, count: int) -> None:
    """Many short entries, which often share a field, between entries of other forms."""
    drawn = random.Random(count)
    fields = [b"u" + str(uuid.UUID(bytes=drawn.randbytes(16))).encode()[:9] for _ in range(3)]
    others = [(b"k", b"any"), (b"k", b"x" * 12), (b"user_email", b"bob@mail.com"), (fields[0], b"short")]
    rows = [drawn.choice([(drawn.choice(fields), drawn.randbytes(12))] * 8 + others) for _ in range(count)]
    together, one_by_one = any_client.eval(READ, 1, b"root", *(value for row in rows for value in row))
    assert together == one_by_one == [entry_key(row) or b"" for row in rows]
