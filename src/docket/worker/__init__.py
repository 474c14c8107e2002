"""The worker: one runner and several small services."""

from .claiming.deferred_tasks import default_fallback_task
from .worker import Worker

__all__ = ["Worker", "default_fallback_task"]
