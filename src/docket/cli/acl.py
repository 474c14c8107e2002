"""`docket acl`"""

from __future__ import annotations

from typing import Annotated

import typer

from docket.cli.support.docket_options import on_docket
from docket.cli.support.flags import Json
from docket.cli.support.output import write_json
from docket.docket import Docket
from docket.storage.permissions import AclRole, rules

app: typer.Typer = typer.Typer(add_completion=False)

RoleOption = Annotated[
    AclRole | None,
    typer.Option("--role", envvar="DOCKET_ACL_ROLE", help="Only the rules of this role.", show_default="all roles"),
]


@app.command()
@on_docket
def acl(docket: Docket, role: RoleOption = None, json: Json = False) -> None:
    """Print the ACL rules that limit users to this docket.

    One line for each role, as in a file of users: put a password in. A worker may also schedule
    tasks, a producer may also look at them, an observer only looks. The command does not connect.
    """
    roles = [role] if role is not None else list(AclRole)
    if json:
        write_json([{"role": one.value, "rules": rules(one, docket.keys)} for one in roles])
        return
    for one in roles:
        typer.echo(f"user {one.value} on >PASSWORD {rules(one, docket.keys)}")
