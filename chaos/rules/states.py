"""The states of a task, as the server published them, are monotone within a run."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.histories import Event
from chaos.model import Model
from chaos.nemesis.server import KillClients, KillServer
from chaos.work import ENDLESS

from .base import Violation

TERMINAL = {"completed", "failed", "cancelled"}
WAITING = {"scheduled", "queued"}
DISCONNECTS = {KillClients.name, KillServer.name}


def states_are_monotone(model: Model) -> Iterable[Violation]:
    """A task runs after it was queued, ends once, and nothing follows its end."""
    seen: dict[str, Event] = {}
    once = {key for key, requests in model.scheduling.items() if len(requests) == 1 and key not in ENDLESS}
    once -= {request.event["key"] for request in model.requests if request.kind == "retry"}
    # The watcher is one of the clients that lose their connections.
    gaps = sorted(at for fault in model.faults if fault.kind in DISCONNECTS for at in (fault.begin, fault.end))
    for event in model.events:
        if event.kind == "gap" or (gaps and gaps[0] <= event.at):
            # Events are missing, so nothing is known about what came before.
            seen.clear()
            gaps = [at for at in gaps if at > event.at]
        if event.kind == "state":
            key, before = event["key"], seen.get(event["key"])
            seen[key] = event
            if before is None or before["goes_on"]:
                continue
            if before["state"] == "running" and event["state"] == "running":
                yield Violation(f"{key} was given out twice without being queued in between", event.at, key)
            elif before["state"] in TERMINAL and key in once:
                yield Violation(f"{key} became {event['state']} after it was {before['state']}", event.at, key)
            elif before["state"] in TERMINAL and event["state"] not in WAITING:
                yield Violation(f"{key} became {event['state']} right after {before['state']}", event.at, key)
