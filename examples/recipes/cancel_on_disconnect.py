"""A request that waits for a task, and cancels it when the client goes away.

Use it for work that only this client wants: a preview, a search, an answer of a model.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from docket import Docket, Worker

stopped: list[str] = []
started = asyncio.Event()


async def render(page: str) -> str:
    if page == "short":
        return "a short page"
    started.set()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        stopped.append(page)  # free what the work holds
        raise
    return "a long page"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Any]]:
    async with Docket(name="previews", url="memory://previews") as docket, Worker(docket) as worker:
        docket.register(render)
        working = asyncio.create_task(worker.run_forever())
        yield {"docket": docket}
        working.cancel()
        await working


async def preview(request: Request) -> Response:
    docket: Docket = request.state.docket
    execution = await docket.add(render)(request.path_params["page"])
    result = asyncio.create_task(execution.get_result())
    gone = asyncio.create_task(disconnected(request))
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return PlainTextResponse(result.result())
        await docket.cancel(execution.key)  # a waiting task is removed, a running one is told to stop
        return Response(status_code=499)
    finally:
        result.cancel()
        gone.cancel()
        await asyncio.gather(result, gone, return_exceptions=True)


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


app = Starlette(routes=[Route("/{page}", preview)], lifespan=lifespan)


async def ask(state: Any, page: str, goes_away: asyncio.Event) -> int:
    """A client that asks for a page, and leaves when `goes_away` is set."""
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        await goes_away.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    scope = {"type": "http", "method": "GET", "path": f"/{page}", "raw_path": b"", "query_string": b"", "headers": []}
    await app({**scope, "state": dict(state)}, receive, send)
    return status[0]


async def main() -> None:
    async with app.router.lifespan_context(app) as state:
        assert await ask(state, "short", asyncio.Event()) == 200
        assert await ask(state, "long", started) == 499  # the client leaves when the work has begun
    print("stopped:", stopped)
    assert stopped == ["long"]


if __name__ == "__main__":
    asyncio.run(main())
