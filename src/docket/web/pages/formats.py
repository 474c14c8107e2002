"""How values read on a page: times, durations, counts, sizes. The filters of the templates."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

from markupsafe import Markup, escape

from docket.dead import Letter
from docket.docket import Docket
from docket.inspection.statistics import FunctionStats, Period
from docket.inspection.why import limit_names
from docket.model.histograms import Histogram
from docket.model.places import RARE_PLACES, words_of
from docket.model.texts import escaped
from docket.model.times import from_ms
from docket.web.charts import HeatMap, Tick, heat_map
from docket.web.charts.heat_map import TimedHistogram
from docket.web.charts.scales import coordinate

_PLACES = {place.value: words_of(place).one for place in RARE_PLACES}


def duration(value: float | timedelta | None) -> str:
    """A duration: 5 ms, 1.5 s, 3 min, 2 h, 4 d."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0095 or seconds <= 0 else f"{seconds * 1000:.1f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86400:.0f} d"


def relative(when: datetime, now: datetime) -> str:
    seconds = (now - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    words = duration(abs(seconds) if abs(seconds) >= 10 else round(abs(seconds))).replace(".0 ", " ")
    return f"{words} ago" if seconds > 0 else f"in {words}"


def moment(when: datetime | None, now: datetime | None = None) -> Markup:
    """A time in both forms, relative and absolute. A switch on the page chooses between them; the
    whole time is its tooltip."""
    return _time(when, relative(when, now or datetime.now(UTC)) if when else "")


def since(when: datetime | None, now: datetime | None = None) -> Markup:
    """How long something has lasted: `12 s` that counts up."""
    if when is None:
        return Markup("–")
    lasted = max(((now or datetime.now(UTC)) - when).total_seconds(), 0.0)
    return _time(when, duration(lasted), Markup(" data-plain"))


def _time(when: datetime | None, words: str, attribute: Markup = Markup("")) -> Markup:
    if when is None:
        return Markup("–")
    utc = when.astimezone(UTC)
    absolute = f"{utc:%H:%M:%S}" if abs(utc - datetime.now(UTC)) < timedelta(hours=12) else f"{utc:%Y-%m-%d %H:%M}"
    return Markup(
        '<time datetime="{}" title="{} UTC"{}><span class="rel">{}</span><span class="abs">{}</span></time>'
    ).format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S}", attribute, words, absolute)


def exact(when: datetime | None) -> str:
    """The whole time, for a page about one thing."""
    return "–" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def field_time(when: datetime) -> str:
    """The value of a field for a time, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Tasks per second: small rates keep their digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.1f} %" if share < 0.1 and share > 0 else f"{share * 100:.0f} %"


def size(value: int | None) -> str:
    if value is None:
        return "–"
    for limit, name in ((1 << 10, "B"), (1 << 20, "KiB"), (1 << 30, "MiB"), (1 << 40, "GiB")):
        if value < limit:
            number = value / (limit >> 10)
            return f"{number:.0f} {name}" if number >= 10 or name == "B" else f"{number:.1f} {name}"
    return f"{value / (1 << 40):.1f} TiB"


def shortened(text: str | None, most: int = 80) -> Markup:
    """A text that fits: the whole of it is its tooltip."""
    shown = escaped(text or "")
    if len(shown) <= most:
        return escape(shown)
    return Markup('<span title="{}">{}…</span>').format(shown[:2000], shown[: most - 1])


def state_words(name: str) -> str:
    return _PLACES.get(str(name), str(name).replace("_", " "))


def anchor(text: str) -> str:
    """The name of an element, from a text that may contain anything."""
    return f"x{hashlib.sha1(text.encode('utf-8', 'surrogatepass'), usedforsecurity=False).hexdigest()[:12]}"


def unit(value: float) -> float:
    """A share between 0 and 1, whatever a task says about its progress."""
    return min(max(value, 0.0), 1.0)


def verbatim(value: object) -> Markup:
    """The value of a form field: it comes back as it is, so it is escaped for HTML only."""
    return escape(str(value))


def percent_encoded(key: str) -> str:
    """A key in a form. A browser would change line breaks in it."""
    return quote(key, safe="", errors="surrogateescape")


def filter_word(word: str) -> str:
    """A word of a filter, such as `function:send_mail`, quoted if it has to be."""
    return shlex.quote(word)


def logged(letter: Letter) -> Mapping[str, str] | None:
    """The `Logged` arguments of a dead letter. Nothing is decoded."""
    return letter.execution.logged_arguments if letter.execution is not None else None


def limit_words(name: str) -> str:
    """A limit that a task waits for: what it counts, not its fingerprint."""
    _, parameter, function = limit_names(name)
    return f"the limit on {parameter}" if parameter is not None else f"the limit of {function or name}"


FILTERS: dict[str, Callable[..., Any]] = {
    "anchor": anchor,
    "coordinate": coordinate,
    "count": count,
    "duration": duration,
    "exact": exact,
    "field_time": field_time,
    "filter_word": filter_word,
    "from_ms": from_ms,
    "limit_words": limit_words,
    "logged": logged,
    "moment": moment,
    "percent": percent,
    "percent_encoded": percent_encoded,
    "rate": rate,
    "shortened": shortened,
    "since": since,
    "size": size,
    "state_words": state_words,
    "unit": unit,
    "verbatim": verbatim,
}

# Minutes that charts show if nothing happened before.
LENGTHS = (5, 15, 30)


def shown_minutes(counts: Sequence[float]) -> int:
    """How many of the last minutes a chart shows. A docket that began a moment ago fills a few
    minutes, not a corner of an hour."""
    first = next((i for i, count in enumerate(counts) if count), len(counts))
    return next((length for length in LENGTHS if len(counts) - first <= length), len(counts))


def clock_ticks(moments: Sequence[datetime]) -> tuple[Tick, ...]:
    """A tick every ten minutes; in a short time, every five or every one."""
    columns = len(moments)
    every = 10 if columns > 30 else 5 if columns > 5 else 1
    return tuple(
        Tick((i + 0.5) / columns * 100, f"{when:%H:%M}") for i, when in enumerate(moments) if when.minute % every == 0
    )


def heat_of(
    periods: Sequence[Period], moments: Sequence[datetime], of: Callable[[FunctionStats], Histogram]
) -> HeatMap:
    columns = {when: i for i, when in enumerate(moments)}
    found = [TimedHistogram(columns[one.since], one.since, of(one.counts)) for one in periods if one.since in columns]
    return heat_map(found, len(moments))


T = TypeVar("T")


class _Reading(Generic[T]):
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.until = 0.0
        self.value: T | None = None


class Shared(Generic[T]):
    """One value per docket, read again when it is older than `lifetime`."""

    def __init__(self, lifetime: timedelta) -> None:
        self._seconds = lifetime.total_seconds()
        self._readings: WeakKeyDictionary[Docket, _Reading[T]] = WeakKeyDictionary()

    async def get(self, docket: Docket, read: Callable[[Docket], Awaitable[T]]) -> T:
        """The value, or the error of reading it. An error is not kept."""
        reading = self._readings.get(docket)
        if reading is None:
            reading = self._readings[docket] = _Reading()
        async with reading.lock:
            if reading.value is None or time.monotonic() >= reading.until:
                reading.value = await read(docket)
                reading.until = time.monotonic() + self._seconds
            return reading.value
