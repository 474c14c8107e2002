"""Mistakes with leases, fences and the recovery of dead workers' tasks."""

from __future__ import annotations

from chaos.nemesis.workers import KillWorker, PauseWorker

from .base import BrokenBuild, change_script


class NoRenewal(BrokenBuild):
    """A renewal is answered, and the lease is not extended."""

    name = "no renewal"
    work = ("with a result", "long")
    seconds = 8.0

    def apply(self) -> None:
        change_script(
            "renew.lua",
            "local extend = {'ZADD', LEASES, 'XX', 'CH', now + lease, worker, now + RENEWED_AT, RENEWED}",
            "local extend = {'ZADD', LEASES, 'XX', 'CH', now + RENEWED_AT, RENEWED}",
        )


class NoFence(BrokenBuild):
    """The end of a run is accepted whichever run of the task it is."""

    name = "no fence"
    faults = (PauseWorker(4.5),)
    work = ("plain", "three seconds")
    seconds = 16.0
    gap_seconds = 2.0

    def apply(self) -> None:
        change_script(
            "settle.lua",
            "local is_ours = run and run.epoch == s.epoch and (not s.owner or run.worker == s.owner)",
            "local is_ours = run",
        )
        change_script(
            "settle.lua",
            "if run_epoch ~= epoch or ttl <= 0",
            "if ttl <= 0",
        )


class RenewalWithoutOwnership(BrokenBuild):
    """A worker that was declared dead gets its lease back and goes on."""

    name = "renewal without ownership"
    # Seldom, so that a worker that has woken has the time to notice that its runs are stale.
    faults = (PauseWorker(3.0),)
    work = ("long",)
    rate = 4.0
    seconds = 14.0
    gap_seconds = 4.0

    def apply(self) -> None:
        change_script(
            "renew.lua",
            "return {call('ZSCORE', LOST, worker) and 0 or 2, now, 0, 0}",
            "call('ZADD', LEASES, now + lease, worker)",
        )


class ReclaimWithoutCursor(BrokenBuild):
    """Only the first few deliveries of all workers are searched for those of a dead one."""

    name = "reclaim without a cursor"
    faults = (KillWorker(),)
    work = ("with a result", "long")
    seconds = 14.0
    gap_seconds = 2.0

    def apply(self) -> None:
        change_script(
            "reclaim.lua",
            "local gone = {}\n",
            """local function first_page(worker, stream)
  local found = {}
  for _, p in ipairs(redis.pcall('XPENDING', stream, GROUP, '-', '+', 2)) do
    if p[2] == worker then found[#found + 1] = p end
  end
  return found
end
local gone = {}
""",
        )
        change_script(
            "reclaim.lua",
            "ipairs(budget > 0 and pending_of(worker, stream, budget) or {})",
            "ipairs(first_page(worker, stream))",
        )
