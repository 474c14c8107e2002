"""Charts as the coordinates of SVG shapes. Templates draw them, so they work without JavaScript."""

from .bars import Bars, HistogramChart, Series, Strip, bars, histogram_chart, mirrored, strip
from .heat_map import HeatMap, heat_map
from .scales import Tick, hue

__all__ = [
    "Bars",
    "HeatMap",
    "HistogramChart",
    "Series",
    "Strip",
    "Tick",
    "bars",
    "heat_map",
    "histogram_chart",
    "hue",
    "mirrored",
    "strip",
]
