"""The results as one picture for the README: bars, as SVG, readable on light and on dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

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
PANEL_WIDTH, LABEL_WIDTH, VALUE_WIDTH = 460, 84, 84
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
    heights = [0, 0]
    for number, ((key, title, hint), bars) in enumerate(panels):
        column = number % 2
        left, top = column * (PANEL_WIDTH + GAP), heights[column]
        parts.append(f'<g transform="translate({left} {top})">{_panel(title, f"{hint}{_scale_hint(key)}", bars)}</g>')
        heights[column] = top + HEAD_HEIGHT + len(bars) * BAR_STEP + GAP
    width, height = 2 * PANEL_WIDTH + GAP, max(heights)
    about = " · ".join(results.about.get(fact, "").partition(", TCP")[0] for fact in ("date", "server", "machine"))
    parts.append(f'<text class="hint" x="0" y="{height}">{escape(about)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -4 {width + 16} {height + 14}" role="img" '
        f'aria-label="Benchmark of docket and other task systems"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _bars(results: Results, key: str) -> list[Bar]:
    """Best first, the bare consumer last, since it is no task system."""
    measure = MEASURES[key]
    medians = [(system.name, results.median(key, system.name)) for system in SYSTEMS]
    found = [Bar(name, value, f"{value:,.{measure.digits}f}") for name, value in medians if value is not None]
    found.sort(key=lambda bar: bar.value, reverse=measure.higher_is_better)
    return [bar for bar in found if bar.system != LIMIT] + [bar for bar in found if bar.system == LIMIT]


def _panel(title: str, hint: str, bars: list[Bar]) -> str:
    most = max(bar.value for bar in bars) or 1.0
    parts = [
        f'<text class="title" x="0" y="13">{escape(title)}</text>',
        f'<text class="hint" x="0" y="29">{hint}</text>',
    ]
    for row, bar in enumerate(bars):
        top = HEAD_HEIGHT + row * BAR_STEP
        length = max(bar.value / most * (PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH), 1.0)
        kind = {OURS: "ours", LIMIT: "limit"}.get(bar.system, "peer")
        strong = ' class="strong"' if bar.system == OURS else ""
        baseline = top + BAR_HEIGHT - 3
        parts.append(
            f'<text{strong} x="{LABEL_WIDTH - 8}" y="{baseline}" text-anchor="end">{_label(bar.system)}</text>'
            f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
            f'<text{strong} x="{LABEL_WIDTH + length + 6:.1f}" y="{baseline}">{bar.text}</text>'
        )
    return "".join(parts)


def _label(system: str) -> str:
    return "bare limit" if system == LIMIT else escape(system)


def _scale_hint(key: str) -> str:
    return "" if MEASURES[key].higher_is_better else "; the best first"
