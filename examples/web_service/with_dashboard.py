"""The service with the dashboard below /docket: `uvicorn with_dashboard:app`."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import HTTPConnection
from users import find_user

from docket import Docket
from docket.web import Role, Visitor
from docket.web import app as dashboard

shop = Docket(name="shop", url=os.environ.get("DOCKET_URL", "redis://localhost:6379/0"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[dict[str, Docket]]:
    async with shop:  # the service and the dashboard share it
        yield {"docket": shop}


async def guard(connection: HTTPConnection) -> Visitor | None:
    user = await find_user(connection.cookies.get("session"))  # your own sign-in
    if user is None:
        return None  # 403; or a RedirectResponse to your page to sign in
    return Visitor(Role.ADMIN if user.is_admin else Role.VIEWER, name=user.email)


app = FastAPI(lifespan=lifespan)
app.mount("/docket", dashboard(shop, guard=guard))
