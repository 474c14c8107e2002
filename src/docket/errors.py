"""The errors of docket. Each one is also the builtin error that a caller expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from docket.execution import Execution


class DocketError(Exception):
    """Root of all errors raised by docket."""


class UnknownScheme(DocketError, ValueError):
    """docket does not know the scheme of the URL."""


class NotOpen(DocketError, RuntimeError):
    """A docket or a worker was used outside its `async with`."""


class ServerUnreachable(DocketError, ConnectionError):
    """The server cannot be reached, or went away before it answered.

    `maybe_stored`: the request was sent and its answer was lost, so the task may be stored. If
    False, nothing was sent, or the server refused: nothing was stored.
    """

    maybe_stored: bool = False


class NotDurable(DocketError, TimeoutError):
    """The task is stored on the primary and may run, but no replica has confirmed it, so a
    fail-over may lose it (`Docket(durability="replica")`).

    `await docket.schedule(error.execution)`, or an `add` with the same key, waits for a replica
    again. It does not make a second task while the first one waits or runs.
    """

    key: str = ""
    execution: Execution[Any]


class ServerFull(DocketError, RuntimeError):
    """The server is out of memory and refuses writes; nothing was stored."""


class ServerUnsuitable(DocketError, RuntimeError):
    """The server answers, but cannot be used (wrong password, missing permission, too old)."""


class NotPermitted(ServerUnsuitable):
    """The user of the server may not do something that docket needs.

    `rule` is what its ACL rules lack: a command (`+xadd`), the pattern of the docket's keys
    (`~shop:*`) or that of its channels (`&docket/0/4:shop/*`). None if the server does not say.
    """

    rule: str | None = None


class MissingPackage(DocketError, ImportError):
    """A package that this part of docket needs is not installed; the message says which."""


class TaskNotRegistered(DocketError, KeyError):
    """No function is registered under that name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class TaskNotFound(DocketError, LookupError):
    """No task has that key: it was never scheduled, or it has ended and its record is gone."""


class EmptyFilter(DocketError, ValueError):
    """A change of many tasks or dead letters has no filter and does not say `everything=True`;
    nothing was changed."""


class LetterNotFound(DocketError, LookupError):
    """There is no such dead letter: it was retried, discarded, dropped or never written."""


class LetterChanged(DocketError, RuntimeError):
    """Somebody else has edited the dead letter at the same time; nothing was changed."""


class Unserializable(DocketError, TypeError):
    """An argument cannot be turned into bytes; nothing was stored."""


class PayloadTooLarge(DocketError, ValueError):
    """The arguments or the result are larger than the docket accepts."""


class TooLong(DocketError, ValueError):
    """A key, a name, a message or the value of a strike is longer than docket accepts; nothing was
    stored."""


class NotPaused(DocketError, LookupError):
    """There is no pause with these arguments. The message lists those that there are."""


class TooManyPauses(DocketError, ValueError):
    """The docket has as many pauses as docket allows; nothing was paused."""


class Undecodable(DocketError, ValueError):
    """Stored bytes cannot be turned back into a value."""


class UnknownVersion(Undecodable):
    """Stored bytes were written by a newer release."""


class UnknownKey(Undecodable):
    """Stored bytes were signed or encrypted with a key that this process does not have."""


class PayloadRefused(Undecodable):
    """Stored bytes are not what this docket accepts, so they were not decoded: they are not signed,
    their tag does not hold, or their codec is not accepted.

    `reason` is one word for metrics: `unsigned`, `tag` or `codec`.
    """

    def __init__(self, message: str, reason: str = "tag") -> None:
        super().__init__(message)
        self.reason = reason


class WorkerLost(DocketError, RuntimeError):
    """The task took its worker down, or lost it, too many times."""


class ProcessLost(DocketError, RuntimeError):
    """The child process that ran a task ended before the function returned: it crashed, was killed,
    or called `os._exit`.

    `signal` is the number of the signal that ended it, or None; `exit_code` its exit code, or None.
    `peak_memory` is the largest amount of memory, in bytes, that it is known to have used.
    """

    def __init__(
        self,
        message: str,
        signal: int | None = None,
        exit_code: int | None = None,
        peak_memory: int | None = None,
    ) -> None:
        super().__init__(message, signal, exit_code, peak_memory)
        self.signal = signal
        self.exit_code = exit_code
        self.peak_memory = peak_memory

    def __str__(self) -> str:
        return str(self.args[0])


class TaskFailed(DocketError, RuntimeError):
    """The task failed with an exception that could not be stored, or that this docket does not
    raise again; the message shows it.

    `traceback` is the traceback in the worker. With `codec="json"`, `type_name` is the full name of
    the type.
    """

    type_name: str | None = None
    traceback: str | None = None


class ResultExpired(DocketError, LookupError, TimeoutError):
    """The task's record is gone: it expired, or the docket keeps none (execution_ttl=0). There is
    no ending to wait for, so it is a TimeoutError, too."""


class ExecutionCancelled(DocketError):
    """The task was cancelled before it finished."""


class WouldDeadlock(DocketError, RuntimeError):
    """A sync docket would block the event loop of a worker, perhaps of the worker that the caller
    waits for."""


class LeaseLost(DocketError, RuntimeError):
    """This run no longer counts: another worker has it, or it was replaced."""


# Errors of the server or the network that may pass.
# docket repeats the request where a repeat is safe.
TRANSIENT = (ServerUnreachable, ServerFull)
