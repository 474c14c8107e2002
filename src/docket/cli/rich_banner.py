"""The banner of a worker on a terminal."""

from __future__ import annotations

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from docket._version import __version__
from docket.cli.banner import Banner
from docket.cli.output import printable
from docket.cli.rich_logs import LogConsole


def show(banner: Banner) -> None:
    facts = Table.grid(padding=(0, 2))
    for name, value in (
        ("docket", banner.docket),
        ("server", f"{banner.url}  ({banner.engine})"),
        ("worker", banner.worker),
        ("concurrency", str(banner.concurrency)),
    ):
        facts.add_row(Text(name, style="dim"), Text(printable(value)))
    panel = Panel(facts, title=f"docket {__version__}", title_align="left", border_style="cyan", expand=False)
    LogConsole(highlight=False).print(panel)
