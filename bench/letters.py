"""Dead letters in numbers: `python -m bench.letters [--letters 100000] [--seconds 4]`.

Writes letters of 20 kinds, measures the overview, the first page of each filter and the retry of
all of them. A process of its own sends one PING after another, first on the idle server and then
during the retry. Server and pinger run at a higher priority where that is allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from docket import Docket, Keep
from docket.dead import Letter
from docket.dependencies.fingerprints import fingerprint
from docket.ledger import Delivery, finish
from docket.ledger.endings import Ending
from docket.ledger.letters import DeathCause, LetterNote, RunNote, fingerprint_lines
from docket.model.states import ExecutionState

from .stalls import Delays, Pinger, quick_server

KINDS, CUSTOMERS = 20, 1_000
PAGE = 50
WEEK_MS = 7 * 86_400_000
GOALS = {"overview": 20, "function": 100, "error": 100, "kind": 100, "text": 1000, "argument": 1000, "retry": 10_000}
TRACEBACK = "Traceback (most recent call last):\n" + '  File "/srv/shop/mail.py", line 41, in send\n    post(m)\n' * 2


async def send(customer: int) -> None: ...


def _failed(docket: Docket, run: Delivery, number: int) -> Any:
    error = f"shop.errors.Error{number % KINDS}"
    text = f"Error{number % KINDS}: mailbox {number} of customer {number % CUSTOMERS} is full"
    note = LetterNote(
        DeathCause.FAILED,
        WEEK_MS,
        docket.keep_failures.letters,
        docket.keep_failures.size,
        error,
        "shop.mail.send",
        fingerprint_lines({"customer": fingerprint(number % CUSTOMERS)}),
        text,
        f"{TRACEBACK}{error}: {text}".encode(),
        rest=RunNote("worker", "1.0", "3.11.0", "deploy").pack(),
    )
    ending = Ending("worker", text).pack()
    return finish(run.key, run.epoch, ExecutionState.FAILED, 60_000, ending, "{}", has_progress=False, letter=note)


async def write_letters(docket: Docket, count: int) -> None:
    """Tasks fail as fast as the scripts permit, without a worker."""
    ledger, worker = docket.ledger, "bench~1"
    await ledger.fleet.register(worker, 3_600_000, ["send"])
    for start in range(0, count, 1000):
        numbers = range(start, min(start + 1000, count))
        await docket.add_many([docket.call(send, key=f"mail-{n}")(n % CUSTOMERS) for n in numbers])
        while runs := await ledger.deliveries.take(worker, '"w"', 50):
            await ledger.tasks.settle([_failed(docket, run, int(run.key.partition("-")[2])) for run in runs])
    await ledger.fleet.leave(worker)


async def _first_page(docket: Docket, **filter: Any) -> list[Letter]:
    return [letter async for letter in docket.dead.find(limit=PAGE, **filter)]


async def _timed(work: Callable[[], Awaitable[Any]], rounds: int = 5) -> tuple[float, Any]:
    """The worst of some rounds, in milliseconds."""
    worst, answer = 0.0, None
    for _ in range(rounds):
        began = time.monotonic()
        answer = await work()
        worst = max(worst, (time.monotonic() - began) * 1000)
    return worst, answer


def _show(name: str, ms: float, what: str) -> None:
    print(f"{name:<10} {ms:>9,.1f} ms  (at most {GOALS[name]:>6,} ms)  {what}", flush=True)


async def measure(url: str, count: int, seconds: float) -> None:
    port = urlsplit(url).port
    assert port is not None
    async with Docket("letters", url, keep_failures=Keep(letters=count, size=1 << 30)) as docket:
        docket.register(send)
        began = time.monotonic()
        await write_letters(docket, count)
        print(f"{count:,} letters written in {time.monotonic() - began:.0f} s", flush=True)
        ms, overview = await _timed(docket.dead.overview)
        _show(
            "overview", ms, f"{overview.letters:,} letters, {overview.size / 1e6:.0f} MB, {len(overview.kinds)} kinds"
        )
        last = count - 1
        filters: dict[str, dict[str, Any]] = {
            "function": {"function": send},
            "error": {"error": "Error7"},
            "kind": {"kind": overview.kinds[3]},
            # The oldest letter: everything is searched.
            "text": {"text": "mailbox 0 of"},
            "argument": {"argument": ("customer", last % CUSTOMERS)},
        }
        for name, filter in filters.items():
            ms, found = await _timed(lambda filter=filter: _first_page(docket, **filter), 3)
            _show(name, ms, f"{len(found)} letters on the first page")
        await _retry(docket, port, seconds)


async def _retry(docket: Docket, port: int, seconds: float) -> None:
    pinger = Pinger(port)
    idle_from = time.monotonic()
    await asyncio.sleep(seconds)
    began = time.monotonic()
    report = await docket.dead.retry(everything=True)
    ended = time.monotonic()
    found = pinger.stop()
    idle = Delays([delay for at, delay in found if idle_from <= at < began])
    busy = Delays([delay for at, delay in found if began <= at < ended])
    _show("retry", (ended - began) * 1000, f"{report.retried:,} of {report.matched:,} retried")
    print(
        f"idle       {idle}\nretrying   {busy}\n           p99.9 is {busy.p999 - idle.p999:.2f} ms above the idle server"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long the idle server is measured")
    options = parser.parse_args()
    with quick_server() as (server, has_priority):
        print(f"server and pinger run at a higher priority: {'yes' if has_priority else 'no'}")
        asyncio.run(measure(server.url, options.letters, options.seconds))


if __name__ == "__main__":
    main()
