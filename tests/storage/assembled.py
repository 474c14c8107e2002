"""The digests of all scripts as the server runs them:
`python -m tests.storage.assembled` writes assembled.txt again."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from docket.storage.repairs import careful_form
from docket.storage.scripts import load

FILE = Path(__file__).with_name("assembled.txt")
COMMAND = "python -m tests.storage.assembled"


def describe() -> str:
    """Per script: its digest, the digest of its careful form, its lines, its name."""
    return "".join(f"{line}\n" for line in map(_line, names()))


def names() -> list[str]:
    folder = files("docket.storage") / "lua"
    return sorted(file.name.removesuffix(".lua") for file in folder.iterdir() if file.name.endswith(".lua"))


def _line(name: str) -> str:
    script = load(name)
    return f"{script.sha} {careful_form(script).sha} {len(script.lines):5} {name}"


if __name__ == "__main__":
    FILE.write_text(describe())
