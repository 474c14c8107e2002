"""Mistakes with pauses."""

from __future__ import annotations

from docket.worker.running.pause_rules import PauseRules

from .base import BrokenBuild, change_script


class HeldInAnyOrder(BrokenBuild):
    """Held tasks go on in the order of a hash of their entries, not in the order in which they
    became ready."""

    name = "held in any order"
    work = ("paused",)
    rate = 6.0
    seconds = 8.0

    def apply(self) -> None:
        change_script(
            "parts/holds.lua",
            "local position = from_front and front_position(task.entry_ms) or task.entry_ms",
            "local position = tonumber(string.sub(redis.sha1hex(key), 1, 8), 16)",
        )


class ClaimedWhilePaused(BrokenBuild):
    """Neither claims nor workers ask for pauses that compare arguments: the version is not
    reported, and messages are ignored."""

    name = "claimed while paused"
    work = ("paused",)
    rate = 6.0
    seconds = 8.0

    def apply(self) -> None:
        change_script(
            "parts/claims.lua",
            "if rules then answer[#answer + 1] = call('HGET', PAUSES, ARGUMENTS) or nil end",
            "",
        )

        def ignore(self: PauseRules) -> None:
            pass

        setattr(PauseRules, "expect_change", ignore)  # noqa: B010
