"""The `docket` command."""

import sys

try:
    from docket.cli.app import app
except KeyboardInterrupt:
    # The import takes about 0.1 s, and Ctrl-C may arrive during it.
    sys.exit(130)
except ModuleNotFoundError as _missing:
    if _missing.name != "typer":
        raise
    sys.exit("docket: the command line needs the package typer: pip install typer rich")

__all__ = ["app"]
