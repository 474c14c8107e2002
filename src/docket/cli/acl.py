"""`docket acl`"""

from __future__ import annotations

from typing import Annotated

import typer

from docket.cli.docket_options import on_docket
from docket.docket import Docket
from docket.storage.acl import Role, rules

app: typer.Typer = typer.Typer(add_completion=False)

ROLE = Annotated[Role | None, typer.Option("--role", help="Only the rules of this role.", show_default="all roles")]


@app.command()
@on_docket
def acl(docket: Docket, role: ROLE = None) -> None:
    """Print the ACL rules with which a server limits users to this docket.

    One line for each role, as in a file of users: put a password in. A worker may also schedule
    tasks, a producer may also look at them, an observer only looks. The command does not connect.
    """
    for one in [role] if role is not None else Role:
        typer.echo(f"user {one.value} on >PASSWORD {rules(one, docket.keys)}")
