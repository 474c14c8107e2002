"""A worker inside the web process: one program, no second deployment, for small services.

`uvicorn worker_in_the_web_process:app` serves requests and runs tasks. With DOCKET_URL, tasks that
one process adds may run in any other. A task that computes for long would slow down requests: give
it `Process()`, or move the workers into programs of their own.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from docket import Docket, Worker


async def send_welcome(email: str) -> str:
    await asyncio.sleep(0.01)
    return f"welcome, {email}"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Any]]:
    url = os.environ.get("DOCKET_URL", "memory://shop")
    async with Docket(name="shop", url=url) as docket, Worker(docket, concurrency=20) as worker:
        docket.register(send_welcome)
        working = asyncio.create_task(worker.run_forever())
        try:
            yield {"docket": docket}
        finally:
            working.cancel()  # the worker takes no new work, and finishes its runs
            await working


async def sign_up(request: Request) -> JSONResponse:
    docket: Docket = request.state.docket
    email = request.path_params["email"]
    execution = await docket.add(send_welcome, key=f"welcome-{email}")(email)
    return JSONResponse({"key": execution.key}, status_code=202)


app = Starlette(routes=[Route("/users/{email}", sign_up, methods=["POST"])], lifespan=lifespan)


async def main() -> None:
    import httpx

    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=with_state), base_url="http://service"
        ) as client:
            answer = (await client.post("/users/ann@example.com")).json()
        docket: Docket = state["docket"]
        execution = await docket.get_execution(answer["key"])
        assert execution is not None
        print(await execution.get_result())


if __name__ == "__main__":
    asyncio.run(main())
