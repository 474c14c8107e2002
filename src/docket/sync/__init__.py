"""docket for code without an event loop: Flask, Django, scripts and notebooks."""

from .docket import Docket
from .execution import Execution
from .progress import ExecutionProgress

__all__ = ["Docket", "Execution", "ExecutionProgress"]
