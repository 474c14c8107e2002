"""Every example in the documentation runs, as a reader would run it."""

import ast
import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docket import Docket, Worker

EXAMPLES = Path(__file__).parents[2] / "examples"
# Shown live for about twenty seconds, and tested with the command line.
LONG = {"demo.py"}
PROGRAMS = sorted(
    path
    for path in EXAMPLES.rglob("*.py")
    if path.name not in LONG and "asyncio.run(" in path.read_text() and not path.name.startswith(("test_", "conftest"))
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_example_runs_without_a_warning(program: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", str(program)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for residue in ("Exception ignored", "never retrieved", "was destroyed but it is pending", "Warning"):
        assert residue not in done.stderr, done.stderr


def test_the_readme_shows_the_quick_start_as_it_is() -> None:
    shown = (EXAMPLES.parent / "README.md").read_text()
    program = (EXAMPLES / "quickstart.py").read_text().split('"""\n\n', 1)[1]
    assert program.strip() in shown


SERVICES = [
    ("fastapi", "web_service/app.py"),
    ("fastapi", "web_service/with_dashboard.py"),
    ("flask", "flask_service/app.py"),
    ("django", "django_service/shop/views.py"),
]


@pytest.mark.parametrize(("page", "example"), SERVICES)
def test_a_guide_shows_its_service_as_it_is(page: str, example: str) -> None:
    shown = (EXAMPLES.parent / "docs" / "guides" / f"{page}.md").read_text()
    program = (EXAMPLES / example).read_text().split('"""\n\n', 1)[1]
    assert program.strip() in shown


PAGES = [EXAMPLES.parent / "README.md", *sorted((EXAMPLES.parent / "docs").rglob("*.md"))]
SNIPPETS = [
    pytest.param(snippet, id=f"{page.name}-{number}")
    for page in PAGES
    for number, snippet in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE), 1
    )
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_is_python_and_imports_what_there_is(snippet: str) -> None:
    tree = compile(snippet, "snippet", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("docket")
    ]
    exec(compile(ast.Module([*imports], []), "imports", "exec"), {})


@pytest.mark.filterwarnings("default")  # what FastAPI's own dependencies deprecate is not ours to mend
async def test_the_web_service_schedules_and_a_worker_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("httpx")
    testing = pytest.importorskip("fastapi.testclient")
    url = f"embedded://{tmp_path}/data"
    monkeypatch.syspath_prepend(EXAMPLES / "web_service")
    monkeypatch.setenv("DOCKET_URL", url)
    for name in ("app", "tasks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    service = __import__("app")

    def sign_up() -> str:
        with testing.TestClient(service.app) as client:
            return client.post("/users", params={"email": "ann@example.com"}).json()["key"]

    def look(key: str) -> str:
        with testing.TestClient(service.app) as client:
            return client.get(f"/tasks/{key}").json()["state"]

    key = await asyncio.to_thread(sign_up)
    async with Docket(name="shop", url=url) as docket, Worker(docket) as worker:
        for function in sys.modules["tasks"].tasks:
            docket.register(function)
        await worker.run_until_finished()
        assert await asyncio.to_thread(look, key) == "completed"
    assert await asyncio.to_thread(look, "another") == "unknown"


@pytest.mark.filterwarnings("default")
def test_only_admins_of_the_service_change_things_in_its_dashboard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("httpx")
    testing = pytest.importorskip("fastapi.testclient")
    monkeypatch.syspath_prepend(EXAMPLES / "web_service")
    monkeypatch.setenv("DOCKET_URL", f"embedded://{tmp_path}/data")
    for name in ("with_dashboard", "users"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    service = __import__("with_dashboard")

    with testing.TestClient(service.app) as client:

        def answers(session: str) -> tuple[int, int]:
            """Of a look at the dashboard, and of a pause."""
            client.cookies.set("session", session)
            look = client.get("/docket")
            pause = client.post(
                "/docket/api/v1/shop/pauses/add",
                headers={"sec-fetch-site": "same-origin"},
                json={"function": "send_welcome"},
            )
            return look.status_code, pause.status_code

        assert answers("nobody") == (403, 403)
        assert answers("bob-4712") == (200, 403)
        assert answers("ann-4711") == (200, 200)
