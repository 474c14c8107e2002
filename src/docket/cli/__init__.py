"""The `docket` command."""

import sys

try:
    from docket.cli.app import app
except KeyboardInterrupt:
    # Loading takes a tenth of a second, in which a user may change their mind.
    sys.exit(130)

__all__ = ["app"]
