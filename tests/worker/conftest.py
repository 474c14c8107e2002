"""The fixtures that users get are the fixtures used here."""

from docket.testing.plugin import clock, docket, docket_url, worker

__all__ = ["clock", "docket", "docket_url", "worker"]
