"""The dead letters that a docket has on its server, and the rules for their indexes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from docket.storage.keys import bytes_text, text_bytes
from docket.storage.letters import LetterRecord, read_letter


@dataclass
class StoredLetters:
    records: dict[int, LetterRecord] = field(default_factory=dict)
    deaths: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_letters(values: dict[str, dict[bytes, Any]]) -> StoredLetters:
    """Takes the letters out of all that is stored, which is by family and name."""

    def one(family: str) -> Any:
        return values.pop(family, {}).get(b"", {})

    found = StoredLetters()
    raw = {int(id): data for id, data in one("letter-records").items()}
    found.records = {id: read_letter(data) for id, data in raw.items()}
    for key, value in one("deaths").items():
        deaths, id = value.split()
        found.deaths[bytes_text(key)] = int(deaths), int(id)
    indexes = {name: one(name) for name in ("letters", "letter-ends", "letter-keys", "letter-kinds", "letter-counts")}
    found.problems = list(_problems(found.records, raw, indexes, values.pop("letter-kind", {})))
    return found


def _problems(
    records: dict[int, LetterRecord], raw: dict[int, bytes], indexes: dict[str, Any], by_kind: dict[bytes, Any]
) -> Iterator[str]:
    expected: dict[str, dict[Any, Any]] = {
        "letters": {b"%016d" % id: float(id) for id in records},
        "letter-ends": {b"%016d" % id: letter.ends_ms for id, letter in records.items()},
        "letter-keys": {
            text_bytes(letter.key).replace(b"\0", b"\0\1") + b"\0\0%016d" % id: 0.0 for id, letter in records.items()
        },
    }
    for name, entries in expected.items():
        if indexes[name] != entries:
            yield f"{name}: {indexes[name].keys() ^ entries.keys()} or their scores differ"
    counts = {
        name.decode(): int(number) for name, number in indexes["letter-counts"].items() if name in (b"id", b"bytes")
    }
    if counts.get("bytes", 0) != sum(letter.size for letter in records.values()):
        yield f"{counts} bytes are counted, and there are {sum(letter.size for letter in records.values())}"
    if any(id > counts.get("id", 0) for id in records):
        yield f"a letter has an id above the last one, {counts}"
    for id, letter in records.items():
        reference = letter.task.reference
        size = len(raw[id]) + (reference.size if reference is not None else 0)
        if letter.size != size:
            yield f"letter {id} has {size} bytes and says {letter.size}"
    yield from _kinds(records, indexes["letter-kinds"], by_kind)


def _kinds(records: dict[int, LetterRecord], stored: dict[bytes, bytes], by_kind: dict[bytes, Any]) -> Iterator[str]:
    numbers = Counter(letter.kind for letter in records.values())
    if {kind.decode() for kind in stored} != set(numbers):
        yield f"there are kinds {set(stored)}, and letters of {set(numbers)}"
    if {kind.decode() for kind in by_kind} != set(numbers):
        yield f"letters are listed under {set(by_kind)}, and are of {set(numbers)}"
    for kind, data in stored.items():
        function, error, place, count, size, first, last = msgpack.unpackb(data, raw=True)
        mine = {id: letter for id, letter in records.items() if letter.kind == kind.decode()}
        if count != len(mine) or size != sum(letter.size for letter in mine.values()):
            yield f"kind {kind} says {count} letters of {size} bytes, and there are {len(mine)}"
        if by_kind.get(kind, {}).keys() != {b"%016d" % id for id in mine}:
            yield f"kind {kind} lists other letters than its own"
        text = b"%d:%b%d:%b%b" % (len(function), function, len(error), error, place)
        if hashlib.sha1(text).hexdigest()[:16] != kind.decode():
            yield f"kind {kind} is not that of {text}"
        if not first <= last:
            yield f"kind {kind} was first seen at {first} and last at {last}"
