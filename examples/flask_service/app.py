"""A Flask service that adds tasks to docket: `gunicorn --preload --workers 2 app:app`."""

import os

from flask import Flask
from tasks import send_welcome

from docket.sync import Docket

app = Flask(__name__)
# One for the whole process. It opens when it is first used, also in each process that gunicorn
# forks.
docket = Docket(name="shop", url=os.environ.get("DOCKET_URL", "redis://localhost:6379/0"))


@app.post("/users/<email>")
def sign_up(email: str) -> tuple[dict[str, str], int]:
    execution = docket.add(send_welcome, key=f"welcome-{email}")(email)
    return {"key": execution.key}, 202


@app.get("/tasks/<key>")
def task_state(key: str) -> dict[str, str]:
    execution = docket.get_execution(key)
    return {"state": execution.state if execution else "unknown"}
