"""What is packed for scripts, in two threads at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from docket.codec.packing import unpack_from_script

from .ledger_client import LedgerClient


class Held(dict[str, bytes]):
    """Packing it lets another thread go first."""

    def __init__(self, reached: threading.Event, release: threading.Event) -> None:
        super().__init__(key=b"value")
        self._reached, self._release = reached, release

    def items(self) -> Iterator[tuple[str, bytes]]:  # type: ignore[override]
        self._reached.set()
        assert self._release.wait(60)
        return iter([("key", b"value")])


async def test_a_renewal_in_its_thread_does_not_mix_with_what_the_event_loop_packs(
    ledger_client: LedgerClient, monkeypatch: Any
) -> None:
    worker = await ledger_client.hire()
    reached, release = threading.Event(), threading.Event()
    sent: list[bytes] = []

    def send(client: Any, script: str, root: Any, channels: Any, packed: bytes) -> list[int]:
        sent.append(packed)
        return [1, 0, 0]

    monkeypatch.setattr(ledger_client.ledger.server, "run_blocking", send)
    thread = threading.Thread(
        target=ledger_client.ledger.run_script_blocking, args=(None, "renew", ("a", Held(reached, release), "b"))
    )
    thread.start()
    assert reached.wait(60)
    await ledger_client.add("task", call=b"c" * 1000)
    release.set()
    thread.join(60)
    assert unpack_from_script(sent[0]) == [b"a", {b"key": b"value"}, b"b"]
    (run,) = await ledger_client.take(worker)
    assert run.record.endswith(b"c" * 1000)
