"""Manifests in the pages (Kubernetes, KEDA, systemd) can be read, and name options and addresses
that exist."""

from __future__ import annotations

import configparser
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_help import all_flags, find
from tests.examples.pages import ROOT, Block, blocks

PAGES = sorted((ROOT / "docs").rglob("*.md"))
MANIFESTS = {
    f"{page.name}:{block.line}": block for page in PAGES for block in blocks(page) if block.language in {"yaml", "ini"}
}


def commands(value: Any) -> Iterator[list[str]]:
    """The command lines in a manifest."""
    if isinstance(value, list) and value[:1] == ["docket"]:
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from commands(inner)


def read(block: Block) -> Any:
    if block.language == "yaml":
        return list(yaml.safe_load_all(block.text))
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(block.text)
    words = shlex.split(unit["Service"]["ExecStart"])
    return [[Path(words[0]).name, *words[1:]]]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_can_be_read_and_its_commands_exist(name: str) -> None:
    for _, command, *options in commands(read(MANIFESTS[name])):
        flags = all_flags(find(command))
        for option in options:
            if option.startswith("--"):
                assert option.split("=")[0] in flags, f"docket {command} has no option {option}"


def test_there_are_manifests_with_commands() -> None:
    assert sum(bool(list(commands(read(block)))) for block in MANIFESTS.values()) >= 2
