"""The rows of requests and answers that scripts and Python both name field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict


class Take(NamedTuple):
    worker: bytes
    # Its name as JSON, for the events.
    worker_json: str
    how_many: int
    # Has one more slot that it may offer (0/1).
    has_spare_slot: int
    # May have offered it before (0/1).
    may_have_offered: int
    # The epoch of the last direct delivery that the worker knows.
    last_known: int
    # How long the offer is valid if there is nothing to take. 0: no offer.
    offer_ms: int
    # Reads the front stream (0/1).
    reads_front: int
    # Functions whose tasks may wait for a worker that knows them, or false.
    functions: Sequence[bytes] | bool
    # How to treat suspects (parts/claims.lua).
    suspects: int
    # The secret of the offer.
    secret: bytes


class Claim(NamedTuple):
    worker: bytes
    worker_json: str
    # Rows of {from the front (0/1), entry id, key or false}.
    delivered: Sequence[Any]
    suspects: int


class ClaimedTask(NamedTuple):
    """A row of the answers of take, claim and claim_by_key."""

    key: bytes
    record: bytes
    epoch: int


class Settle(NamedTuple):
    # Time to live of a completed or cancelled task.
    task_ttl: int
    # The worker that offers a slot, or false.
    offered_by: bytes | bool
    # How long the offer is valid.
    offer_ms: int
    items: Sequence[tuple[Any, ...]]
    # The worker that claimed these runs, or false for any.
    claimed_by: bytes | bool
    # The secret of the offer.
    secret: bytes
    # The cell of each item (0: not counted), and the measures of each, of one after the other.
    cells: Sequence[int]
    measures: Sequence[float]
    # How long letters are kept.
    keep_ms: int
    # The fields of each `CompletedRun`, of one after the other.
    completed: Sequence[Any]


class AddOptions(TypedDict, total=False):
    """The options of `add`, `replace` and `call` beside the time and the key. A caller gives them
    by keyword; between there and the script nobody copies them. The type of an option is a class
    that msgpack can pack, or a union of such classes."""


class NewCall(NamedTuple):
    """A row of enqueue."""

    key: bytes
    # 0: now.
    due: float
    mode: int
    name: bytes
    call: bytes
    attempt: int
    # For a generated key: the last 12 bytes of its UUID.
    key_end: bytes | None = None
    # By name. A call without options has none.
    options: AddOptions | None = None


# Bits of the mode of a call. FRESH: the key is new, so the script need not read it.
FRESH = 1
REPLACE = 2
# Due now, even if the caller's clock is fast.
NOW = 4
# The call is the reference to a stored payload.
STORED = 8
# The caller sent this call before and got no answer: a task of that key, even a finished one, is
# this call and counts as scheduled.
UNANSWERED = 16
# A worker seeds an automatic task: skip it if its chain was cancelled.
SEED = 32
# Docket generated the key, and an earlier request with it may still arrive.
REPEAT = 64


class PackedCall(NamedTuple):
    """The values of one call in a request of enqueue_new, whose keys docket has generated and not
    sent before."""

    key: bytes
    # Negative if the task is due now even if the caller's clock is fast.
    due: float
    # The end of the task record, from the length of the function's name on.
    record_end: bytes
    # The last 12 bytes of the UUID that is the key.
    key_end: bytes
