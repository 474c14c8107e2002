"""Another name for docket.errors."""

from docket.errors import *  # noqa: F403
