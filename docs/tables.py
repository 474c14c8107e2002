"""Tables of the documentation that follow from the code: `python -m docs.tables` writes them.

A table stands between two comments: `<!-- table: NAME (python -m docs.tables) -->` and
`<!-- end of the table -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

from docket.cli.app import COMMANDS
from docket.cli.support.docket_options import docket_flags
from docket.cli.support.worker_options import worker_flags
from docket.docket import Docket
from docket.model.options import EVERYWHERE, WORKERS, declared_options

FOLDER = Path(__file__).parent
_BLOCK = re.compile(
    r"(<!-- table: ([a-z ]+) \(python -m docs\.tables\) -->\n).*?(<!-- end of the table -->)", re.DOTALL
)


def settings() -> str:
    """The options that select a docket and change its settings."""
    names = {flag.parameter_name for flag in docket_flags()}
    agreed = {
        who: " and ".join(
            f"`{name}`" for name, option in sorted(declared_options(Docket).items()) if option.option.must_agree == who
        )
        for who in (EVERYWHERE, WORKERS)
    }
    everywhere = agreed[EVERYWHERE].replace(" and ", ", ", agreed[EVERYWHERE].count(" and ") - 1)
    sentence = f"{everywhere} must be the same in {EVERYWHERE}, {agreed[WORKERS]} in {WORKERS}."
    return _options(option for option in _worker_command() if option.name in names) + f"\n{fill(sentence, 100)}\n"


def worker() -> str:
    """The other options of `docket worker`."""
    names = {flag.parameter_name for flag in docket_flags()} | {"help"}
    return _options(option for option in _worker_command() if option.name not in names)


TABLES: dict[str, Callable[[], str]] = {"settings of a docket": settings, "options of a worker": worker}


def write(page: str) -> str:
    """The page with its tables written again."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def _worker_command() -> list[Any]:
    command: Any = COMMANDS["worker"].load("worker")
    return command.params


def _options(options: Iterable[Any]) -> str:
    pages = {flag.parameter_name: flag.declared.option.page for flag in (*docket_flags(), *worker_flags())}
    defaults = {flag.parameter_name: flag.default_text() for flag in (*docket_flags(), *worker_flags())}
    rows = ["| option | variable | default | |", "|---|---|---|---|"]
    for option in options:
        if option.hidden:
            continue
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        default = defaults.get(option.name, str(option.default))
        page = pages.get(option.name)
        more = f" [More]({page})." if page else ""
        rows.append(f"| {flags} | `{_variable(option)}` | {_code(default)} | {option.help}{more} |")
    return "".join(f"{row}\n" for row in rows)


def _variable(option: Any) -> str:
    return option.envvar if isinstance(option.envvar, str) else option.envvar[0]


def _code(default: str | None) -> str:
    """A default as code, unless it is a description."""
    if default is None or " " in default:
        return default or ""
    return f"`{default}`"


if __name__ == "__main__":
    for file in FOLDER.rglob("*.md"):
        page = file.read_text()
        if (written := write(page)) != page:
            file.write_text(written)
