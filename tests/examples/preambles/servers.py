# ruff: noqa: F401, F821, RUF100
"""The order of the page."""

order = 7
