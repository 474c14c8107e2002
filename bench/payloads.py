"""What payloads cost: `python -m bench.payloads [--repeats 60]`.

Prints the CPU microseconds per task to seal and open a call and a result: in the producer and in
the worker together. Each figure is the least of many short measurements, because other programs
only make it larger. Exits with 1 if signing costs more than 10 µs per task, or if JSON is slower
than pickle.
"""

from __future__ import annotations

import argparse
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from docket.codec import Keyring, Payloads
from docket.model.states import ExecutionState

KEY = "01a1e78a-2e37-769b-9513-771a8f498c77"
RUN = (KEY, 1_763_348_400_000_000, ExecutionState.COMPLETED)
LOOPS = 2000
MOST_SIGNING_US = 10.0


async def charge(customer: int, currency: str = "EUR", express: bool = False) -> str: ...


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((5,), {}), ((5, "EUR"), {"express": True})]


@dataclass
class Cost:
    """Microseconds of CPU."""

    seal_call: float
    open_call: float
    seal_result: float
    open_result: float

    @property
    def total(self) -> float:
        return self.seal_call + self.open_call + self.seal_result + self.open_result


def settings() -> dict[str, Payloads]:
    keys = Keyring({"2026-11": bytes(range(32))})
    return {
        "pickle": Payloads(),
        "json": Payloads("json"),
        "pickle, signed": Payloads("pickle", keys, docket="bench"),
        "json, signed": Payloads("json", keys, docket="bench"),
        "pickle, encrypted": Payloads("pickle", keys, docket="bench", encrypt=True),
        "json, encrypted": Payloads("json", keys, docket="bench", encrypt=True),
    }


def measure(payloads: Payloads, repeats: int) -> Cost:
    """The mean of the calls."""
    costs = [_measure(payloads, args, kwargs, repeats) for args, kwargs in CALLS]
    return Cost(
        *(
            sum(getattr(cost, part) for cost in costs) / len(costs)
            for part in ("seal_call", "open_call", "seal_result", "open_result")
        )
    )


def _measure(payloads: Payloads, args: tuple[Any, ...], kwargs: dict[str, Any], repeats: int) -> Cost:
    call = payloads.seal_call(KEY, "charge", charge, args, kwargs)
    result = payloads.seal_result(*RUN, charge, "done")
    return Cost(
        _us(lambda: payloads.seal_call(KEY, "charge", charge, args, kwargs), repeats),
        _us(lambda: payloads.open_call(KEY, "charge", charge, call), repeats),
        _us(lambda: payloads.seal_result(*RUN, charge, "done"), repeats),
        _us(lambda: payloads.open_result(*RUN, charge, result), repeats),
    )


def _us(action: Callable[[], Any], repeats: int) -> float:
    times = timeit.repeat(action, number=LOOPS, repeat=repeats, timer=time.process_time)
    return min(times) / LOOPS * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=60)
    repeats = parser.parse_args().repeats
    print("CPU µs per task      seal call  open call  seal result  open result   total")
    costs: dict[str, Cost] = {}
    for name, payloads in settings().items():
        cost = costs[name] = measure(payloads, repeats)
        print(
            f"{name:20} {cost.seal_call:9.2f}  {cost.open_call:9.2f}  {cost.seal_result:11.2f}  "
            f"{cost.open_result:11.2f}  {cost.total:6.2f}"
        )
    signing = max(costs[f"{codec}, signed"].total - costs[codec].total for codec in ("pickle", "json"))
    ratio = costs["json"].total / costs["pickle"].total
    print(f"signing adds {signing:.2f} µs per task (goal: at most {MOST_SIGNING_US:g})")
    print(f"json takes {ratio:.2f} of the time of pickle (goal: at most 1)")
    return 0 if signing <= MOST_SIGNING_US and ratio <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
