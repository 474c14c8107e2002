"""The summary at the end of the demo."""

from __future__ import annotations

from collections.abc import Sequence

from docket.cli.demo.shop import COURIER_LINES, Diary
from docket.cli.demo.story import PAGES_TO_INDEX, Story
from docket.inspection.live import Totals

NEXT = """\
Try next:
  docket worker --url embedded://$HOME/my-docket                 a worker, without a server
  docket tasks trace hello --url embedded://$HOME/my-docket      a task for the worker
  docket top --url embedded://$HOME/my-docket                    a live view
  docket bench --url redis://localhost:6379/0                   docket's speed on your server
  docket --help                                                 everything else"""


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def in_time(values: Sequence[float]) -> str:
    if not values:
        return "no figures"
    half, most = percentile(values, 0.5) * 1000, percentile(values, 0.9) * 1000
    return f"half within {half:,.1f} ms, nine of ten within {most:,.1f} ms"


def summary(seconds: float, engine: str, totals: Totals, diary: Diary, story: Story) -> list[str]:
    lines = [
        f"In {seconds:.0f} seconds on the embedded engine ({engine}):",
        f"  {totals.completed:,} tasks completed and {totals.failed:,} failed (the old warehouse, on purpose); "
        f"{story.orders:,} orders came in",
        f"  {diary.declined:,} failed payments were retried",
        f"  orders, from add to start: {in_time(diary.start_lateness)}",
        f"  receipts, from due time to start: {in_time(diary.receipt_lateness)}",
    ]
    if diary.indexed == PAGES_TO_INDEX:
        took = max(diary.indexed_at - story.index_began, 0.001)
        lines.append(
            f"  {PAGES_TO_INDEX:,} pages were indexed in {took:.2f} s: {PAGES_TO_INDEX / took:,.0f} tasks a second"
        )
    if diary.most_lines:
        lines.append(f"  no courier had more than {diary.most_lines} of {COURIER_LINES} lines in use at a time")
    return [*lines, "", NEXT]
