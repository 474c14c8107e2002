"""Progress in the browser: the events of a task as server-sent events (SSE).

Run it with `uvicorn progress_to_a_browser:app` and open http://127.0.0.1:8000. As a program it asks
itself once and prints the events.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from docket import Docket, ExecutionProgress, Progress, Worker

PAGE = """<progress id="bar" max="1" value="0"></progress> <span id="text"></span>
<script>
  fetch("/imports", {method: "POST"}).then(answer => answer.text()).then(key => {
    const events = new EventSource("/events/" + key);
    events.onmessage = message => {
      const event = JSON.parse(message.data);
      if (event.type === "progress") { bar.max = event.total; bar.value = event.current; }
      text.textContent = event.message ?? event.state;
      if (["completed", "failed", "cancelled"].includes(event.state)) events.close();
    };
  });
</script>"""


async def import_rows(rows: int, progress: ExecutionProgress = Progress()) -> int:
    await progress.set_total(rows)
    for row in range(rows):
        await asyncio.sleep(0.02)
        await progress.update(current=row + 1, message=f"row {row + 1} of {rows}")
    return rows


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Any]]:
    # The worker is in the same process here, so that the example needs nothing else.
    async with Docket(name="imports", url="memory://imports") as docket, Worker(docket) as worker:
        docket.register(import_rows)
        working = asyncio.create_task(worker.run_forever())
        yield {"docket": docket}
        working.cancel()
        await working


async def page(request: Request) -> Response:
    return HTMLResponse(PAGE)


async def start(request: Request) -> Response:
    docket: Docket = request.state.docket
    execution = await docket.add(import_rows)(20)
    return Response(execution.key, status_code=202)


async def events(request: Request) -> Response:
    docket: Docket = request.state.docket
    execution = await docket.get_execution(request.path_params["key"])
    if execution is None:
        return Response("no such task", status_code=404)

    async def lines() -> AsyncGenerator[str]:
        # The present state comes first, so a browser that
        # reconnects misses nothing. It ends with the task.
        async for event in execution.subscribe():
            yield f"data: {json.dumps(event, default=str)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


app = Starlette(
    routes=[
        Route("/", page),
        Route("/imports", start, methods=["POST"]),
        Route("/events/{key}", events),
    ],
    lifespan=lifespan,
)


async def main() -> None:
    import httpx

    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx.ASGITransport(app=with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as browser:
            key = (await browser.post("/imports")).text
            received = (await browser.get(f"/events/{key}", timeout=60)).text
            assert (await browser.get("/events/nobody")).status_code == 404
    found = [json.loads(line.removeprefix("data: ")) for line in received.split("\n\n") if line]
    print(*(event.get("message") or event.get("state") for event in found), sep="\n")
    assert found[-1]["state"] == "completed"
    assert any(event.get("current") == 20 for event in found)


if __name__ == "__main__":
    asyncio.run(main())
