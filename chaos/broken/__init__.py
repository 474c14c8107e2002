"""Builds that are broken on purpose: the rules must catch each of them."""

from __future__ import annotations

from .base import BrokenBuild
from .clocks import CronByWorkerClock, DueTimesByWorkerClock
from .leases import NoFence, NoRenewal, ReclaimWithoutCursor, RenewalWithoutOwnership
from .letters import FailuresNotKept
from .pauses import ClaimedWhilePaused, HeldInAnyOrder
from .requests import LateRequestsStored
from .runtimes import AbandonedThreadsForgotten, ChildrenOutliveWorkers, LostChildIsDone, TimeoutWaitsForThread
from .settlements import AcknowledgeFirst, RefusedAfterAdoption, SettleOnce
from .statistics import RetriesAsFailures

BUILDS: dict[str, BrokenBuild] = {
    build.name: build
    for build in (
        AcknowledgeFirst(),
        NoRenewal(),
        NoFence(),
        RenewalWithoutOwnership(),
        DueTimesByWorkerClock(),
        ReclaimWithoutCursor(),
        SettleOnce(),
        RefusedAfterAdoption(),
        CronByWorkerClock(),
        RetriesAsFailures(),
        FailuresNotKept(),
        HeldInAnyOrder(),
        ClaimedWhilePaused(),
        TimeoutWaitsForThread(),
        AbandonedThreadsForgotten(),
        LostChildIsDone(),
        ChildrenOutliveWorkers(),
        LateRequestsStored(),
    )
}

__all__ = ["BUILDS", "BrokenBuild"]
