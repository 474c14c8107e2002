"""Charts as the coordinates of SVG shapes. Templates draw them, so they work without JavaScript."""

from .bars import Bars, Series, bars, mirrored
from .heat_map import HeatMap, heat_map
from .histogram_chart import HistogramChart, histogram_chart
from .scales import Tick, hue
from .strip import Strip, strip

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
