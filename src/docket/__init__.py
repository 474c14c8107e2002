"""A distributed background task system for Python functions, on Redis or Valkey."""

from docket._version import __version__ as __version__
