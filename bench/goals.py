"""The goals of the design, and whether a run reached them."""

from __future__ import annotations

from dataclasses import dataclass

from bench.measures import MEASURES
from bench.results import Results
from bench.systems import SYSTEMS, Kind

OURS = "docket"
LIMIT = "bare"
PEERS = tuple(system.name for system in SYSTEMS if system.is_peer)
ASYNC_PEERS = tuple(system.name for system in SYSTEMS if system.kind is Kind.ASYNC_PEER)


@dataclass(frozen=True)
class Goal:
    """`bound` is the figure to reach, `times_best` how
    many times as good as the best of `peers` to be."""

    measure: str
    text: str
    bound: float | None = None
    times_best: float | None = None
    peers: tuple[str, ...] = PEERS


GOALS = (
    Goal("enqueue_one", "above every async peer", times_best=1.0, peers=ASYNC_PEERS),
    Goal("enqueue_bulk", "≥ 30,000", 30_000),
    Goal("drain_10", "≥ 6,000, five times the best peer", 6_000, times_best=5.0),
    Goal("drain_100", "≥ 10,000, five times the best peer", 10_000, times_best=5.0),
    Goal("defaults_100", "≥ 10,000, five times the best peer", 10_000, times_best=5.0),
    # 57 µs per task is what e87d013 needed; `python -m bench.drain --against` compares in one run.
    Goal("server_cpu_100", "≤ 0.037, 0.65 of e87d013", 0.037),
    Goal("efficiency", "≥ 0.95", 0.95),
    Goal("plain", "above every peer", times_best=1.0),
    Goal("blocking_10", "above every peer", times_best=1.0),
    Goal("blocking_100", "above every peer", times_best=1.0),
    Goal("computing_1", "above every peer", times_best=1.0),
    Goal("computing_50", "above every peer", times_best=1.0),
    Goal("latency_p50", "≤ 1.2", 1.2),
    Goal("result_p50", "≤ 2.0", 2.0),
    Goal("late_p50", "≤ 5, below Celery's", 5.0, times_best=1.0, peers=("celery",)),
    Goal("late_p99", "≤ 20", 20.0),
    Goal("bytes", "≤ 150", 150.0),
    Goal("commands_100", "≤ 8", 8.0),
    Goal("worker_cpu_100", "≤ 0.09", 0.09),
    Goal("idle_commands", "≤ 3", 3.0),
    Goal("import_cpu", "≤ 0.35", 0.35),
)


@dataclass(frozen=True)
class Verdict:
    """`ratio` and `limit_ratio` say how many times as good we
    are: above 1 is better, whichever way the measure goes.

    `reached` is None where it cannot be told.
    """

    goal: Goal
    ours: float | None
    reached: bool | None
    best_peer: str | None
    best: float | None
    ratio: float | None
    limit: float | None
    limit_ratio: float | None


def judge(results: Results, goal: Goal) -> Verdict:
    measure = MEASURES[goal.measure]
    ours = results.median(goal.measure, OURS)
    medians = {peer: results.median(goal.measure, peer) for peer in goal.peers}
    found = {peer: value for peer, value in medians.items() if value is not None}
    best = measure.best(list(found.values())) if found else None
    best_peer = next((peer for peer, value in found.items() if value == best), None)
    limit = results.median(goal.measure, LIMIT)
    ratio = times_as_good(ours, best, higher=measure.higher_is_better)
    return Verdict(
        goal, ours, _reached(goal, ours, ratio), best_peer, best, ratio,
        limit, times_as_good(ours, limit, higher=measure.higher_is_better),
    )  # fmt: skip


def _reached(goal: Goal, ours: float | None, ratio: float | None) -> bool | None:
    if ours is None or (goal.times_best is not None and ratio is None):
        return None
    higher = MEASURES[goal.measure].higher_is_better
    far_enough = goal.bound is None or (ours >= goal.bound if higher else ours <= goal.bound)
    good_enough = goal.times_best is None or (ratio is not None and ratio >= goal.times_best)
    return far_enough and good_enough


def times_as_good(ours: float | None, theirs: float | None, *, higher: bool) -> float | None:
    if ours is None or theirs is None or ours <= 0 or theirs <= 0:
        return None
    return ours / theirs if higher else theirs / ours
