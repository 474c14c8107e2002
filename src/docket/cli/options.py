"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_DOCKET = "docket"
DEFAULT_URL = "redis://localhost:6379/0"

DocketName = Annotated[
    str, typer.Option("--docket", "-d", envvar="DOCKET_NAME", metavar="NAME", help="The name of the docket.")
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        envvar=["DOCKET_URL", "DOCKET_REDIS_URL"],
        metavar="URL",
        help="The server: redis://…, valkey://…, redis+cluster://…, redis+sentinel://…, or embedded:///folder, "
        "which needs none.",
    ),
]
Json = Annotated[bool, typer.Option("--json", envvar="DOCKET_JSON", help="Write JSON, for other programs.")]
