"""Mistakes with the statistics."""

from __future__ import annotations

from chaos.nemesis.workers import KillWorker

from .base import BrokenBuild, change_script


class RetriesAsFailures(BrokenBuild):
    """The script forgets which runs were retried."""

    name = "retries counted as failures"
    faults = (KillWorker(),)
    work = ("plain", "retrying")
    seconds = 6.0

    def apply(self) -> None:
        line = "        row[KINDS + kind] ="
        change_script("parts/statistics.lua", line, f"        kind = kind == 4 and 2 or kind\n{line}")
