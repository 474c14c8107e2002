"""The REST API, version 1 (docs/web.md). It asks and changes what the pages do, as JSON."""

from .routes import api_routes

__all__ = ["api_routes"]
