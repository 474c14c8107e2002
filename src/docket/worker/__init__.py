"""The worker: a staff of small services round one runner."""

from .fallback import default_fallback_task
from .worker import Worker

__all__ = ["Worker", "default_fallback_task"]
