"""The metrics for Prometheus. They need no OpenTelemetry SDK."""

from __future__ import annotations

from typing import Any

import prometheus_client as prometheus

from .instruments import Attributes, Gauge, instruments

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)


class PrometheusMirror:
    """Collects the values of all instruments. The first
    value of a metric determines its label names."""

    def __init__(self) -> None:
        self.registry: prometheus.CollectorRegistry = prometheus.CollectorRegistry()
        self._metrics: dict[str, tuple[Any, tuple[str, ...]]] = {}
        for instrument in instruments():
            instrument.mirror = self._mirror(instrument)
            if isinstance(instrument, Gauge):
                instrument.forget = self._forgetter(instrument)

    def detach(self) -> None:
        """Stops collecting values, when the metrics port closes."""
        for instrument in instruments():
            instrument.mirror = None
            if isinstance(instrument, Gauge):
                instrument.forget = None

    def render(self) -> bytes:
        return prometheus.generate_latest(self.registry)

    def _mirror(self, instrument: Any) -> Any:
        def pass_on(amount: float, attributes: Attributes) -> None:
            child = self._child(instrument, attributes)
            if instrument.kind == "counter":
                child.inc(amount)
            elif instrument.kind == "histogram":
                child.observe(amount)
            elif isinstance(instrument, Gauge):
                child.set(amount)
            else:
                child.inc(amount)

        return pass_on

    def _forgetter(self, instrument: Gauge) -> Any:
        def forget(attributes: Attributes) -> None:
            found = self._metrics.get(instrument.name)
            if found is not None:
                metric, names = found
                values = _values(attributes)
                metric.remove(*[values.get(name, "") for name in names])

        return forget

    def _child(self, instrument: Any, attributes: Attributes) -> Any:
        values = _values(attributes)
        found = self._metrics.get(instrument.name)
        if found is None:
            names = tuple(sorted(values))
            found = self._metrics[instrument.name] = (self._new(instrument, names), names)
        metric, names = found
        return metric.labels(*[values.get(name, "") for name in names])

    def _new(self, instrument: Any, names: tuple[str, ...]) -> Any:
        name = f"{instrument.name}_seconds" if instrument.unit == "s" else instrument.name
        if instrument.kind == "counter":
            return prometheus.Counter(name, instrument.description, names, registry=self.registry)
        if instrument.kind == "histogram":
            return prometheus.Histogram(name, instrument.description, names, registry=self.registry, buckets=_BUCKETS)
        return prometheus.Gauge(name, instrument.description, names, registry=self.registry)


def _values(attributes: Attributes) -> dict[str, str]:
    return {name.replace(".", "_"): str(value) for name, value in attributes.items()}
