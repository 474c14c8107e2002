"""Log records from parts that are the same for every line of one kind.

`Logger.info` looks for its caller on the stack and asks for the names of process and thread for
each line. That takes longer than a small task. Handlers, filters and levels see the same records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from typing import Any

_new = logging.LogRecord.__new__


def _task_name() -> str | None:
    """The name of the asyncio task that logs; Python 3.12 and later have it in every record."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else task.get_name()


class LogTemplate:
    """The parts of one kind of line: its logger, its level and its place in the code."""

    def __init__(self, logger: logging.Logger, level: int, function: Any) -> None:
        self._logger = logger
        self._level = level
        code = function.__code__
        self._place = code.co_filename, code.co_firstlineno, code.co_name
        self._parts: dict[str, Any] = {}
        self._thread = 0
        self._loaded_at_ms = 0.0
        _templates.add(self)

    def log(self, message: str, args: tuple[Any, ...], extra: dict[str, Any]) -> None:
        """Logs a line. `extra` may not have the name of a field of records."""
        if logging.getLogRecordFactory() is not logging.LogRecord:
            # The application makes its own records.
            self._logger.handle(self._usual_record(message, args, extra))
            return
        now = time.time()
        thread = threading.get_ident()
        if thread != self._thread:
            self._prepare(thread)
        fields = {**self._parts, **extra}
        fields["msg"], fields["args"] = message, args
        fields["created"], fields["msecs"] = now, float(int(now % 1 * 1000))
        fields["relativeCreated"] = now * 1000 - self._loaded_at_ms
        if "taskName" in fields:
            fields["taskName"] = _task_name()
        record = _new(logging.LogRecord)
        record.__dict__ = fields
        self._logger.handle(record)

    def _usual_record(self, message: str, args: tuple[Any, ...], extra: dict[str, Any]) -> logging.LogRecord:
        file, line, function = self._place
        return self._logger.makeRecord(self._logger.name, self._level, file, line, message, args, None, function, extra)

    def forget(self) -> None:
        """After a fork, in the child: the parts name the parent. To ask for the id of the process
        is a call of the system, and would cost each line more than all else."""
        self._thread = 0

    def _prepare(self, thread: int) -> None:
        record = self._usual_record("", (), {})
        self._parts = dict(record.__dict__)
        self._loaded_at_ms = record.created * 1000 - record.relativeCreated
        self._thread = thread


_templates: weakref.WeakSet[LogTemplate] = weakref.WeakSet()


def _forget_all() -> None:
    for template in list(_templates):
        template.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
