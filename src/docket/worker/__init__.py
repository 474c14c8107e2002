"""The worker: a staff of small services round one runner."""

from .worker import Worker

__all__ = ["Worker"]
