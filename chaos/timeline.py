"""A picture of a run: its load above, its faults below, on one axis of time, as SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from .faults import Fault
from .model import Model
from .rules import Violation

WIDTH, LABEL, LOAD_HEIGHT, ROW = 900, 150, 120, 16
STYLE = """
text { font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a; }
.title { font-weight: 600; font-size: 13px; fill: #24292f; }
.added { fill: none; stroke: #0969da; stroke-width: 1.2; }
.started { fill: #1f883d; fill-opacity: 0.35; }
.fault { fill: #bf8700; }
.everybody { fill: #cf222e; }
.violation { stroke: #cf222e; stroke-width: 1.5; }
.grid { stroke: #d0d7de; stroke-width: 0.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1; }
  .title { fill: #f0f6fc; }
  .grid { stroke: #3d444d; }
}
"""


class Timeline:
    """Draws one run."""

    def __init__(self, model: Model, violations: Sequence[Violation], title: str) -> None:
        self._model = model
        self._violations = violations
        self._title = title
        self._begin = model.events[0].at
        self._seconds = max(model.events[-1].at - self._begin, 1.0)

    def draw(self) -> str:
        kinds = sorted({fault.kind for fault in self._model.faults})
        height = 30 + LOAD_HEIGHT + 24 + len(kinds) * ROW + 20
        parts = [f'<text class="title" x="0" y="14">{escape(self._title)}</text>', self._load(), self._axis(height)]
        for row, kind in enumerate(kinds):
            top = 30 + LOAD_HEIGHT + 24 + row * ROW
            faults = [fault for fault in self._model.faults if fault.kind == kind]
            parts.append(f'<text x="{LABEL - 8}" y="{top + 10}" text-anchor="end">{escape(kind)}</text>')
            parts += [self._bar(fault, top) for fault in faults]
        parts += [
            f'<line class="violation" x1="{self._x(v.at):.1f}" x2="{self._x(v.at):.1f}" y1="24" y2="{height - 18}"/>'
            for v in self._violations
        ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -4 {WIDTH + 16} {height + 8}" role="img" '
            f'aria-label="{escape(self._title)}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
        )

    def _x(self, at: float) -> float:
        return LABEL + (min(at, self._begin + self._seconds) - self._begin) / self._seconds * (WIDTH - LABEL)

    def _load(self) -> str:
        """Requests and starts per second."""
        added = self._per_second([r.event.at for r in self._model.requests if r.kind in ("add", "replace")])
        started = self._per_second([run.at for run in self._model.runs])
        most = max([*added, *started, 1])
        base = 30 + LOAD_HEIGHT

        def points(counts: Sequence[int]) -> str:
            return " ".join(
                f"{self._x(self._begin + i + 0.5):.1f},{base - count / most * LOAD_HEIGHT:.1f}"
                for i, count in enumerate(counts)
            )

        area = f"{LABEL},{base} {points(started)} {WIDTH},{base}"
        return (
            f'<text x="{LABEL - 8}" y="40" text-anchor="end">{most} a second</text>'
            f'<text x="{LABEL - 8}" y="{base - 20}" text-anchor="end" style="fill:#1f883d">starts</text>'
            f'<text x="{LABEL - 8}" y="{base - 6}" text-anchor="end" style="fill:#0969da">requests</text>'
            f'<polygon class="started" points="{area}"/><polyline class="added" points="{points(added)}"/>'
        )

    def _per_second(self, times: Sequence[float]) -> list[int]:
        counts = Counter(int(at - self._begin) for at in times)
        return [counts[second] for second in range(int(self._seconds) + 1)]

    def _axis(self, height: int) -> str:
        step = next(step for step in (5, 10, 30, 60, 120, 600, 3600) if self._seconds / step <= 16)
        parts: list[str] = []
        for second in range(0, int(self._seconds) + 1, step):
            x = self._x(self._begin + second)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{height - 18}"/>')
            parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">{second} s</text>')
        return "".join(parts)

    def _bar(self, fault: Fault, top: float) -> str:
        left, right = self._x(fault.begin), self._x(fault.end)
        kind = "fault" if fault.targets else "everybody"
        about = escape(f"{fault.kind} {' '.join(fault.targets)} {fault.end - fault.begin:.1f} s")
        return (
            f'<rect class="{kind}" x="{left:.1f}" y="{top + 2}" width="{max(right - left, 2):.1f}" height="{ROW - 5}" '
            f'rx="1.5"><title>{about}</title></rect>'
        )
