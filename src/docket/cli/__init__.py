"""The `docket` command."""

import sys

try:
    from docket.cli.app import app
except KeyboardInterrupt:
    # Loading takes a tenth of a second, in which a user may change their mind.
    sys.exit(130)
except ModuleNotFoundError as _missing:
    if _missing.name != "typer":
        raise
    sys.exit("docket: the command line needs the package typer: pip install typer rich")

__all__ = ["app"]
