"""The results as one picture for the README: bars, as SVG, readable on light and on dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from bench.figures import median
from bench.goals import LIMIT, OURS
from bench.measures import MEASURES
from bench.results import Results
from bench.systems import SYSTEMS

PANELS = (
    ("drain_100", "Tasks drained a second, concurrency 100", "more is better"),
    ("drain_10", "Tasks drained a second, concurrency 10", "more is better"),
    ("latency_p50", "Enqueue to start on an idle worker, median ms", "less is better"),
    ("late_p50", "Lateness of scheduled tasks, median ms", "less is better"),
)
PANEL_WIDTH, LABEL_WIDTH, VALUE_WIDTH, COLUMNS = 460, 84, 84, 2
# A bar is truncated if it is this many times as long as the median of the peers.
CUT_AT = 6.0
BAR_HEIGHT, BAR_STEP, HEAD_HEIGHT, GAP = 14, 21, 44, 28

STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a; }
.title { font-weight: 600; font-size: 13px; fill: #24292f; }
.hint { font-size: 11px; }
.ours { fill: #1f883d; }
.peer { fill: #8c959f; }
.limit { fill: none; stroke: #8c959f; stroke-dasharray: 3 2; }
.strong { font-weight: 600; fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1; }
  .title { fill: #f0f6fc; }
  .ours { fill: #3fb950; }
  .peer { fill: #656c76; }
  .limit { stroke: #9198a1; }
  .strong { fill: #3fb950; }
}
"""


@dataclass(frozen=True)
class Bar:
    system: str
    value: float
    text: str


def draw(results: Results) -> str:
    """An SVG document. Panels without any figure are left out."""
    panels = [(panel, bars) for panel in PANELS if (bars := _bars(results, panel[0]))]
    parts: list[str] = []
    height = 0
    for row in range(0, len(panels), COLUMNS):
        side_by_side = panels[row : row + COLUMNS]
        for column, ((_, title, hint), bars) in enumerate(side_by_side):
            place = f"translate({column * (PANEL_WIDTH + GAP)} {height})"
            parts.append(f'<g transform="{place}">{_panel(title, hint, bars)}</g>')
        height += HEAD_HEIGHT + max(len(bars) for _, bars in side_by_side) * BAR_STEP + GAP
    width = COLUMNS * PANEL_WIDTH + (COLUMNS - 1) * GAP
    about = " · ".join(results.about.get(fact, "").partition(", TCP")[0] for fact in ("date", "server", "machine"))
    parts.append(f'<text class="hint" x="0" y="{height}">{escape(about)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -4 {width + 16} {height + 14}" role="img" '
        f'aria-label="Benchmark of docket and other task systems"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _bars(results: Results, key: str) -> list[Bar]:
    """Best first. The bare consumer is last, because it is not a task system."""
    measure = MEASURES[key]
    medians = [(system.name, results.median(key, system.name)) for system in SYSTEMS]
    found = [Bar(name, value, f"{value:,.{measure.digits}f}") for name, value in medians if value is not None]
    found.sort(key=lambda bar: bar.value, reverse=measure.higher_is_better)
    return [bar for bar in found if bar.system != LIMIT] + [bar for bar in found if bar.system == LIMIT]


def _panel(title: str, hint: str, bars: list[Bar]) -> str:
    most = _longest(bars)
    parts = [
        f'<text class="title" x="0" y="13">{escape(title)}</text>',
        f'<text class="hint" x="0" y="29">{hint}</text>',
    ]
    for row, bar in enumerate(bars):
        top = HEAD_HEIGHT + row * BAR_STEP
        length = max(min(bar.value / most, 1.0) * (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH), 1.0)
        text = f"{bar.text} ⟶" if bar.value > most else bar.text
        kind = {OURS: "ours", LIMIT: "limit"}.get(bar.system, "peer")
        strong = ' class="strong"' if bar.system == OURS else ""
        baseline = top + BAR_HEIGHT - 3
        parts.append(
            f'<text{strong} x="{LABEL_WIDTH - 8}" y="{baseline}" text-anchor="end">{_label(bar.system)}</text>'
            f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
            f'<text{strong} x="{LABEL_WIDTH + length + 6:.1f}" y="{baseline}">{text}</text>'
        )
    return "".join(parts)


def _longest(bars: list[Bar]) -> float:
    """The value of a full bar. A much longer bar is truncated and gets an arrow, so that the others
    stay visible."""
    others = [bar.value for bar in bars if bar.system not in (OURS, LIMIT)] or [bar.value for bar in bars]
    most = max(bar.value for bar in bars)
    usual = max(median(others) * CUT_AT, *(bar.value for bar in bars if bar.system in (OURS, LIMIT)), 0.0)
    return min(most, usual) or 1.0


def _label(system: str) -> str:
    return "bare limit" if system == LIMIT else escape(system)
