"""docket's own loggers never raise.

`logging` passes the errors of filters, and those of many handlers, on to whoever logs. Here
that may be a worker in the middle of a run: an error from a log line would make a task run again
that would have ended.
"""

from __future__ import annotations

import logging

OWN_LOGGERS = (
    "docket.audit",
    "docket.dependencies",
    "docket.docket",
    "docket.execution",
    "docket.foreign",
    "docket.storage",
    "docket.strikelist",
    "docket.supervisor",
    "docket.web",
    "docket.worker",
)

# Only for its report of an error, which goes to standard error.
_reporter = logging.Handler()


class OwnLogger(logging.Logger):
    """A logger that reports the errors of handlers and filters instead of raising them."""

    def handle(self, record: logging.LogRecord) -> None:
        try:
            super().handle(record)
        except Exception:
            _reporter.handleError(record)


def protect_own_loggers() -> None:
    """Makes docket's loggers ones that never raise. The same objects stay in use, whoever has
    them."""
    for name in OWN_LOGGERS:
        logger = logging.getLogger(name)
        kind = type(logger)
        if kind is logging.Logger:
            logger.__class__ = OwnLogger
        elif not issubclass(kind, OwnLogger):
            # The application has a class of its own for loggers.
            logger.__class__ = type(kind.__name__, (OwnLogger, kind), {})


def pass_on(record: logging.LogRecord) -> None:
    """Gives a record of another process to the handlers of this one."""
    target = logging.getLogger(record.name)
    if not target.isEnabledFor(record.levelno):
        return
    try:
        target.handle(record)
    except Exception:
        _reporter.handleError(record)
