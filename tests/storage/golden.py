"""The bytes of one record of each kind, as scripts pack them:
`python -m tests.storage.golden` writes golden.txt again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docket.storage.scripts import assemble
from docket.testing.servers import ServerProcess

FILE = Path(__file__).with_name("golden.txt")
COMMAND = "python -m tests.storage.golden"

_TASK = (
    "{location = IN_FRONT, flags = HAS_PROGRESS + WAS_ADMITTED, attempt = 3, losses = 130, generation = 4,"
    " submission = 4000000000, due = 1750000000123, entry_ms = 1750000000456, entry_seq = 7,"
    " name = 'send_mail', call = '\\1\\2call'}"
)
_RUN = (
    "{epoch = 1750000000789012, started = 1750000000789, entry_ms = 1750000000456, entry_seq = 7,"
    " flags = CANCEL_ASKED + FROM_FRONT, worker = 'mail~1a2b', limits = '\\129\\160'}"
)
# Kind: the parts that it needs, and how a script makes it.
KINDS = {
    "task": ("keys, records", f"return pack_task({_TASK})"),
    "run": ("keys, records", f"return pack_run({_RUN})"),
    "finished": (
        "keys, records, payloads",
        f"return pack_finished(FAILED_STATE + RESULT_APART, 1750000000789012, 1750000000789, 1750000001000,"
        f" pack_task({_TASK}), 'progress', 'tail')",
    ),
    "finished without progress": (
        "keys, records",
        "return pack_finished(COMPLETED_STATE, 1750000000789012, 1750000000789, 1750000001000, 'task', '', 'tail')",
    ),
    "letter": (
        "keys, records, letters",
        "return pack_letter({reason = FAILED_LETTER, flags = SEALED_TRACEBACK, deaths = 2, edits = 1,"
        " died = 1750000000789, ends = 1760000000789, epoch = 1750000000789012, started = 1750000000700, size = 321,"
        " kind = '0123456789abcdef', key = 'order-7', error = 'ValueError', place = 'mail.py:7', arguments = '\\ncustomer=ab\\n',"
        f" text = 'no address', traceback = 'sealed', task = pack_task({_TASK}), rest = '\\128'}})",
    ),
    "failed attempt": (
        "keys, records, failed_attempts",
        f"add_failed_attempt('order-7', {_TASK}, {_RUN}, 1750000001000, 'row')\n"
        "return call('GET', FAILED_ATTEMPTS .. 'order-7')",
    ),
    "cancelled tail": ("endings", "return CANCELLED_TAIL .. CANCELLED_EVENT"),
    "history entry": (
        "keys, records, statistics, history",
        "add_entry(HISTORY_FAILURES, 1000, {LOST_KIND, 'order-7', "
        f"pack_task({_TASK}), {_RUN}, 1.5, nil, 1}}, 1750000001000, 'lost', 2)\n"
        "return call('XRANGE', HISTORY_FAILURES, '-', '+')[1][2][2]",
    ),
    "statistics row": (
        "keys, records, statistics",
        "count_cells({send_mail = {[SUCCEEDED_KIND * KIND_CELL + 5 * RUN_CELL + 6] = 2, [-1] = 1.5}}, 1750000001000)\n"
        "local row, text = read_row(call('HGET', STATS_MINUTE .. '29166666', 'fsend_mail')), {}\n"
        "for at, number in pairs(row) do text[#text + 1] = at .. '=' .. number end\n"
        "table.sort(text)\nreturn table.concat(text, ' ')",
    ),
    "state of a held task": (
        "keys, records, holds",
        f"to_held('order-7', {_TASK}, '=send_mail', true)\n"
        "local found = call('ZRANGE', HELD_TASKS .. '=send_mail', 0, 0, 'WITHSCORES')\n"
        "return found[1] .. ' ' .. found[2] .. ' ' .. call('HGET', HELD_BY, 'order-7')",
    ),
    "pause": ("keys, holds", "return PAUSED .. RESUMING .. WHOLE_DOCKET .. FUNCTION .. ARGUMENTS .. ROUND"),
}


def record(client: Any, kind: str) -> bytes:
    """The record as a script packs it. Leaves keys on the server."""
    parts, code = KINDS[kind]
    script = assemble(kind, f"-- A golden record.\n-- uses: {parts}\n{code}\n")
    return client.eval(script.source, 1, "golden:", "channel:")


def describe(client: Any) -> str:
    return "".join(f"{kind}: {record(client, kind).hex()}\n" for kind in KINDS)


def written() -> dict[str, bytes]:
    lines = (line.partition(": ") for line in FILE.read_text().splitlines())
    return {kind: bytes.fromhex(data) for kind, _, data in lines}


if __name__ == "__main__":
    with ServerProcess() as server, server.client() as client:
        FILE.write_text(describe(client))
