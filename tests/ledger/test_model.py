"""Whatever happens in whatever order, the state on
the server is sound, and is that of the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import Bench, LedgerMachine

EXAMPLES = int(os.environ.get("LEDGER_EXAMPLES", "40"))
STEPS = int(os.environ.get("LEDGER_STEPS", "50"))


@pytest.fixture
def bench(new_url: Callable[[], str]) -> Iterator[Bench]:
    bench = Bench(new_url())
    yield bench
    bench.close()


# Finding a history takes seconds, making it short takes minutes.
@pytest.mark.timeout(3600 if EXAMPLES > 1000 else 900)
def test_every_history_keeps_the_stored_state_sound(bench: Bench) -> None:
    machine: Any = lambda: LedgerMachine(bench)  # noqa: E731  # hypothesis calls it as it would call the class
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
            print_blob=True,
        ),
    )
