"""Nothing is left on the server after the drain."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.model import Model

from .base import Violation

# Keys that stay for ever, or for as long as somebody wants them (docs/design/key-layout.md).
LASTING = {
    "stream",
    "front",
    "epoch",
    "automatic",
    "cancelled-chains",
    "deploys",
    "sweep-cursor",
    "lost",
    "secret",
    # Keeps the version of its last change.
    "strike-rules",
    # Dead letters, and entries of other programs.
    "letters",
    "letter-ends",
    "letter-keys",
    "letter-records",
    "letter-kinds",
    "letter-counts",
    "buried-chains",
    "foreign",
}


def nothing_is_left_after_the_drain(model: Model) -> Iterable[Violation]:
    """No pending delivery, no consumer of a worker that is gone, no key without a time to live."""
    inspected = model.of_kind("inspected")
    at = inspected[-1].at if inspected else model.events[-1].at
    if not inspected:
        yield Violation("the server was not inspected", at)
    for event in model.of_kind("stream"):
        for what, count in (
            ("entries", event["length"]),
            ("pending deliveries", event["pending"]),
            ("consumers", len(event["consumers"])),
        ):
            if count:
                yield Violation(f"{count} {what} of {event['name']} are left {event['consumers']}", at)
    for event in model.of_kind("key"):
        if event["ttl"] == -1 and event["name"] not in LASTING and not event["name"].startswith("letter-kind:="):
            yield Violation(f"the key {event['name']} is left, without a time to live", at)
    for event in model.of_kind("strikes"):
        if event["count"] > _strikes_that_stay(model):
            yield Violation(f"{event['count']} strikes are left", at)
    for event in model.records.values():
        if event["ttl"] == -1:
            yield Violation(f"the record of {event['key']} has no time to live", at, event["key"])


def _strikes_that_stay(model: Model) -> int:
    """A strike stays if its producer was killed before it could restore it, or never knew of it."""
    struck = {r.event["value"] for r in model.requests if r.kind == "strike" and r.may_count}
    restored = {r.event["value"] for r in model.requests if r.kind == "restore" and r.accepted}
    return len(struck - restored)
