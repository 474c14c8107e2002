"""Every script is complete: what it uses is defined before it, once, and where it is needed."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from docket.storage.schema import lua as schema
from docket.storage.schema.locations import FILES
from docket.storage.scripts import load, part, part_file, source, used_parts

from .lua import Local, Reading, common, tokens

LUA = files("docket.storage") / "lua"
SCRIPTS = sorted(file.name.removesuffix(".lua") for file in LUA.iterdir() if file.name.endswith(".lua"))
PARTS = sorted(file.name.removesuffix(".lua") for file in (LUA / "parts").iterdir())
PARTS += ["locations", *(f"locations/{of}" for of in FILES)]
PATHS = [*(f"{name}.lua" for name in SCRIPTS), *map(part_file, PARTS)]
SOURCES = {path: "".join(f"{line.text}\n" for line in source(path)) for path in PATHS}
PART_LINES = frozenset(
    [
        *(line for name in PARTS for line in SOURCES[part_file(name)].splitlines() if line.startswith("local ")),
        *(f"local {name} = {value}" for name, (value, _) in schema.definitions().items()),
    ]
)
PART_OF = {name: of for of in PARTS for name in part(of).definitions}

every_script = pytest.mark.parametrize("name", SCRIPTS)
every_source = pytest.mark.parametrize("path", SOURCES)


def header(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))])


def definitions(reading: Reading) -> list[Local]:
    """What came from the parts."""
    return [local for local in reading.locals if local.line in PART_LINES]


@every_source
def test_a_header_names_the_parts_whose_definitions_the_source_uses_and_no_others(path: str) -> None:
    text = SOURCES[path]
    used = {PART_OF[name] for name in Reading(text).unknown if name in PART_OF}
    named = used_parts(path, header(text))
    assert len(named) == len(set(named))
    assert set(named) == used


@every_script
def test_a_header_says_what_a_script_is_given_and_what_it_answers(name: str) -> None:
    text = header(SOURCES[f"{name}.lua"])
    assert "\n-- Returns: " in text
    assert "ARGV[2]: " in text or "ARGV[" not in SOURCES[f"{name}.lua"].removeprefix(text)


def test_a_name_is_defined_in_one_part() -> None:
    names = [name for of in PARTS for name in part(of).definitions]
    assert len(names) == len(set(names))


@every_source
def test_a_name_of_the_schema_means_the_same_everywhere(path: str) -> None:
    names = {name for local in Reading(SOURCES[path]).locals for name in local.names}
    assert names.isdisjoint(schema.definitions())


def test_every_part_is_used_by_a_script_or_by_another_part() -> None:
    assert {name for path, text in SOURCES.items() for name in used_parts(path, text)} == set(PARTS)


def test_a_source_without_the_line_is_refused() -> None:
    with pytest.raises(ValueError, match=r"enqueue.*parts"):
        used_parts("enqueue", "-- Writes down a batch of calls.\n")


@every_script
def test_a_script_compiles(any_client: Any, name: str) -> None:
    script = load(name)
    assert any_client.execute_command("SCRIPT", "LOAD", script.source).decode() == script.sha


@every_script
def test_every_name_a_script_uses_is_defined_around_it_or_the_server_knows_it(any_client: Any, name: str) -> None:
    for unknown in sorted(Reading(load(name).source).unknown):
        # A global that does not exist is an error of its own.
        assert any_client.eval(f"return type({unknown})", 0) != b"nil"


@every_script
def test_every_place_for_parts_was_filled(name: str) -> None:
    assert "--- parts" not in load(name).source


@every_script
def test_a_definition_is_not_repeated_where_an_outer_block_has_it(name: str) -> None:
    found = definitions(Reading(load(name).source))
    for local in found:
        around = set(local.scope.path()) - {local.scope}
        assert not [other for other in found if other.line == local.line and other.scope in around]


@every_script
def test_a_definition_that_only_a_block_needs_is_in_that_block(name: str) -> None:
    found = definitions(Reading(load(name).source))
    blocks = {local.scope for local in found}
    for local in found:
        if local.uses:
            within = [scope for scope in common(local.uses).path() if scope in blocks]
            assert within[0] is local.scope, local.line


@every_script
def test_nothing_is_linked_that_nobody_needs(name: str) -> None:
    assert [local.line for local in definitions(Reading(load(name).source)) if not local.uses] == []


@every_script
def test_no_definition_is_there_twice_in_one_block(name: str) -> None:
    reading = Reading(load(name).source)
    assert {name for local in definitions(reading) for name in local.names}.isdisjoint(reading.twice)


def test_a_use_before_the_definition_is_found() -> None:
    assert Reading("local function f() return g() end\nlocal function g() end").unknown == {"g"}


def test_a_definition_in_another_block_does_not_count() -> None:
    assert Reading("if a then local b = 1 else c(b) end").unknown == {"a", "b", "c"}


def test_fields_keys_and_texts_are_no_uses() -> None:
    assert Reading("local t = {a = 1, ['b'] = 'c' .. d} -- e\nreturn t.f, t:g(\"h\")..i").unknown == {"d", "i"}


def test_loops_and_parameters_define_names() -> None:
    source = "for i, v in pairs({}) do f(i, v) end\nlocal function g(x, ...) return x end\nwhile i do g(v) end"
    assert Reading(source).unknown == {"pairs", "f", "i", "v"}


def test_all_of_every_source_is_read() -> None:
    for name in SCRIPTS:
        assert len(tokens(load(name).source)) > 10
