"""A FastAPI service that adds tasks to docket: `uvicorn app:app`."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from tasks import send_welcome

from docket import Docket


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Docket]]:
    url = os.environ.get("DOCKET_URL", "redis://localhost:6379/0")
    async with Docket(name="shop", url=url) as docket:  # one for the whole process
        yield {"docket": docket}


app = FastAPI(lifespan=lifespan)


@app.post("/users", status_code=202)
async def sign_up(email: str, request: Request) -> dict[str, str]:
    docket: Docket = request.state.docket
    execution = await docket.add(send_welcome, key=f"welcome-{email}")(email)
    return {"key": execution.key}


@app.get("/tasks/{key}")
async def task_state(key: str, request: Request) -> dict[str, str]:
    docket: Docket = request.state.docket
    execution = await docket.get_execution(key)
    return {"state": execution.state if execution else "unknown"}
