"""See docket at work, on the embedded engine: the same as `docket demo`."""

import sys

from docket.cli import app

if __name__ == "__main__":
    app(["demo", *sys.argv[1:]])
