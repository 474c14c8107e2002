"""The `docket` command."""

from docket.cli.app import app

__all__ = ["app"]
