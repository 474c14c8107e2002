"""Every block of the documentation runs, from the pages themselves (pages.py says how)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docket.testing.servers import ServerProcess
from tests.examples.commands import Shop, shell_blocks
from tests.examples.pages import ROOT, Story, blocks, run_snippets, snippets

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "design")]
# Pages that tell a story: files and commands, from top to bottom.
STORIES = [page for page in PAGES if any(block.title for block in blocks(page))]
WITH_COMMANDS = [page for page in PAGES if page not in STORIES and shell_blocks(page)]
WITH_SNIPPETS = [page for page in PAGES if any(snippets(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def server() -> Iterator[str]:
    with ServerProcess("--save", "", tcp=True) as running:
        yield running.url


# Dozens of processes start, one after the other: half a minute each on a busy machine.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", STORIES, ids=name)
def test_the_files_and_commands_of_a_page_work(page: Path, server: str, tmp_path: Path) -> None:
    Story(page, tmp_path, server).tell()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name)
@pytest.mark.filterwarnings("default")  # services use libraries
def test_the_commands_of_a_page_work(page: Path, server: str, tmp_path: Path) -> None:
    Shop(page, tmp_path, server).run()


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name)
@pytest.mark.filterwarnings("default")  # pages use libraries, and show what warns
async def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await run_snippets(page, tmp_path)
