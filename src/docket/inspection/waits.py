"""What happened on the docket while a task waited that has begun to run since."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from docket.ledger.statistics import MINUTE_MS, Sample
from docket.model.times import to_ms

if TYPE_CHECKING:
    from docket.docket import Docket

# Shorter waits need no explanation.
WORTH_A_WORD = timedelta(seconds=1)
# Samples are taken about once a minute. Without a worker there are none.
_GAP_MINUTES = 3


async def explain_wait(docket: Docket, due: datetime, started: datetime) -> str | None:
    """What the docket was busy with from the due time to the claim, in one sentence; None if the
    wait was short, or if nothing is known: the samples of the last 200 minutes are kept."""
    if started - due < WORTH_A_WORD:
        return None
    first, last = (int(to_ms(at) // MINUTE_MS) for at in (due, started))
    samples = await docket.ledger.statistics.samples(first, last)
    if not samples:
        return None
    return _in_words(samples, last - first + 1)


def _in_words(samples: Sequence[Sample], minutes: int) -> str:
    busiest = max(samples, key=lambda sample: sample.ready)
    ready = "no task was" if not busiest.ready else "1 task was" if busiest.ready == 1 else f"{busiest.ready:,} were"
    words = [f"{ready} ready and {busiest.running or 'none'} ran"]
    for count, what in (
        (max(sample.parked for sample in samples), "waited for a limit"),
        (max(sample.held for sample in samples), "were held by a pause"),
        (max(sample.unknown for sample in samples), "waited for a worker that knows their function"),
    ):
        if count:
            words.append(f"{count:,} {what}")
    sentence = f"On the docket at that time: {', '.join(words)}."
    missing = minutes - len(samples)
    if missing >= _GAP_MINUTES:
        sentence += f" For about {missing} minutes no worker took a sample: perhaps none was there."
    return sentence
