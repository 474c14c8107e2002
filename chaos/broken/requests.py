"""Mistakes with requests to schedule tasks."""

from __future__ import annotations

from chaos.nemesis.network import LateRequests

from .base import BrokenBuild, change_script


class LateRequestsStored(BrokenBuild):
    """A request that arrives after its repeat stores its task again."""

    name = "late requests stored"
    faults = (LateRequests(),)
    in_producers = True
    seconds = 16.0
    gap_seconds = 0.7

    def apply(self) -> None:
        change_script("parts/repeats.lua", "call('ZADD', REPEATED, unpack(members))", "")
