"""Mistakes with the end of runs and with deliveries."""

from __future__ import annotations

from typing import Any

from chaos.nemesis.network import LateMessages, Reset
from chaos.nemesis.server import ReadOnly
from chaos.nemesis.workers import KillWorker
from docket.ledger import SettleResult
from docket.worker.claiming import direct_delivery
from docket.worker.running import runner, settlement_writer

from .base import BrokenBuild


class AcknowledgeFirst(BrokenBuild):
    """A task is recorded as done before its body begins."""

    name = "acknowledge before running"
    faults = (KillWorker(),)
    seconds = 8.0
    gap_seconds = 2.0

    def apply(self) -> None:
        call: Any = vars(runner.Runner)["_call"]

        async def acknowledge_and_call(self: Any, run: Any) -> Any:
            await self._closer.settle_and_wait(run, self._decisions.succeeded(run, 0.0))
            return await call(self, run)

        setattr(runner.Runner, "_call", acknowledge_and_call)  # noqa: B010


class SettleOnce(BrokenBuild):
    """An end that the server did not answer is forgotten."""

    name = "settle not retried"
    faults = (ReadOnly(), Reset())
    seconds = 10.0
    gap_seconds = 1.0

    def apply(self) -> None:
        def forget(self: Any, batch: list[Any]) -> None:
            for item in batch:
                item.on_answer(SettleResult.LOST)

        setattr(settlement_writer.SettlementWriter, "_put_back", forget)  # noqa: B010


class RefusedAfterAdoption(BrokenBuild):
    """A late direct delivery of a run that the worker has adopted meanwhile is given back."""

    name = "direct delivery refused after adoption"
    # The worker adopts the run after two seconds. It
    # must still be under way when the message comes.
    faults = (LateMessages(3.0, 5.0),)
    work = ("three seconds", "long")
    rate = 4.0
    seconds = 16.0
    gap_seconds = 0.7

    def apply(self) -> None:
        on_message: Any = vars(direct_delivery.DirectDelivery)["_on_message"]

        def refuse_known(self: Any, message: bytes) -> None:
            delivery, _ = direct_delivery.read_delivery(message[direct_delivery.SECRET_SIZE :])
            if self._is_known(delivery.epoch):
                self._refuse(delivery)
            else:
                on_message(self, message)

        setattr(direct_delivery.DirectDelivery, "_on_message", refuse_known)  # noqa: B010
