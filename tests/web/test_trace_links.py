"""Links to a tracing system."""

from __future__ import annotations

import pytest

from docket import Docket
from docket.inspection import task
from docket.web import app
from docket.web.dashboard import TraceLinks

from .conftest import Browser

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def note() -> None: ...


@pytest.mark.parametrize(
    "url",
    [
        *("https://tracing.example/trace/{trace_id}", "http://localhost:16686/trace/{trace_id}?from=docket#top"),
        *("https://[::1]:4/{trace_id}", "https://example/?q={trace_id}"),
    ],
)
def test_the_id_takes_its_place(url: str) -> None:
    assert TraceLinks(url).of(TRACE) == url.replace("{trace_id}", TRACE)


@pytest.mark.parametrize(
    "url",
    [
        *("", "https://tracing.example/trace/", "https://example/{trace_id}/{trace_id}", "https://example/{id}"),
        *("javascript:alert('{trace_id}')", "data:text/html,{trace_id}", "//example/{trace_id}", "/trace/{trace_id}"),
        *(
            "https://{trace_id}.example/",
            "https:///{trace_id}",
            "https://example/ {trace_id}",
            "ftp://example/{trace_id}",
        ),
        *("https://example/\n{trace_id}", "https://me:secret@example/{trace_id}", "https://[::1/{trace_id}"),
        *("https://example:99999/{trace_id}", "https://exämple/{trace_id}", "https://example/{trace_id}{x}"),
    ],
)
def test_what_is_not_a_link_to_a_trace_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="trace_url"):
        app(Docket("shop", "memory://shop"), guard=None, trace_url=url)


@pytest.mark.parametrize("trace_url", [None, "https://tracing.example/trace/{trace_id}?a=1&b=2"])
async def test_the_page_of_a_task_leads_to_its_trace(
    docket: Docket, browser: Browser, segment: str, trace_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:

    def read_trace(headers: bytes) -> dict[str, str]:
        return {"traceparent": f"00-{TRACE}-{'1' * 16}-01"}

    monkeypatch.setattr(task, "read_trace", read_trace)
    await docket.add(note, key="one")()
    found = await browser(app(docket, guard=None, trace_url=trace_url)).get(f"/{segment}/task?key=one")
    link = f'<a href="https://tracing.example/trace/{TRACE}?a=1&amp;b=2" rel="noreferrer"><code>{TRACE}</code></a>'
    assert (link in found.text) is (trace_url is not None)
    assert f"<code>{TRACE}</code>" in found.text
