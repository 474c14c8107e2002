"""What MkDocs does for this site besides its settings: pages and links of the repository outside
docs/, and the pages that may be missing."""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger("mkdocs.hooks.docket")

# Files outside docs/ that the site shows, below `repository/`.
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "compat/pydocket/README.md", "tests/README.md")
FOLDERS = ("examples",)
# Entries of the navigation that are left out while their page does not exist.
OPTIONAL = {"web.md"}
# Keys of the repository that the front page of the site stands for.
FRONT = {"README.md", "docs", "docs/README.md"}

FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[`~]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#")


# The section that gets the design pages that the navigation does not list.
DESIGN = "How it works"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    folder = Path(config.docs_dir)
    config.nav = _without_missing(config.nav or [], folder)
    listed = set(_pages(config.nav))
    design = (str(page.relative_to(folder)) for page in sorted((folder / "design").glob("*.md")))
    for entry in config.nav:
        if isinstance(entry, dict) and DESIGN in entry:
            entry[DESIGN] += [page for page in design if page not in listed]
    return config


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from _pages(value) if isinstance(value, list) else [value]


def _without_missing(entries: list[Any], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(value, list):
            kept.append({title: _without_missing(value, folder)})
        elif value not in OPTIONAL or (folder / value).exists():
            kept.append(entry)
    return kept


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in published():
        name = str(path.relative_to(ROOT))
        files.append(File.generated(config, site_name(name), content=_content(path)))
    for folder in sorted({path.parent for path in published() if path.is_relative_to(ROOT / FOLDERS[0])}):
        name = str(folder.relative_to(ROOT))
        files.append(File.generated(config, f"repository/{name}/README.md", content=_listing(folder)))
    return files


def published() -> Iterator[Path]:
    yield from (ROOT / name for name in PAGES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix in {".py", ".ini", ".md", ".yaml"}:
                yield path


def site_name(name: str) -> str:
    """The page that shows a file of the repository."""
    return f"repository/{name}" if name.endswith(".md") else f"repository/{name}.md"


def _content(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    language = {".py": "python", ".ini": "ini", ".yaml": "yaml"}.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT)}\n\n```{language}\n{text}```\n"


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in published() if path.parent == folder)
    below = sorted({path.relative_to(folder).parts[0] for path in published() if folder in path.parents} - set(names))
    lines = [f"# {folder.relative_to(ROOT)}\n"]
    lines += [f"* [{name}/]({name}/README.md)" for name in below if (folder / name).is_dir()]
    lines += [f"* [{name}]({name if name.endswith('.md') else name + '.md'})" for name in names]
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are written for the repository, where they lead to files. On the site they lead to
    pages."""
    source = page.file.src_uri
    home = source.removeprefix("repository/") if source.startswith("repository/") else f"docs/{source}"
    parts: list[str] = []
    end = 0
    for block in FENCED.finditer(markdown):
        parts += [_links(_indented(markdown[end : block.start()]), home, source, files), _indented(block[0], block[1])]
        end = block.end()
    return "".join([*parts, _links(_indented(markdown[end:]), home, source, files)])


def _indented(text: str, indent: str = "   ") -> str:
    """Blocks in a numbered list, with the four spaces that Python-Markdown wants."""
    return re.sub(r"^   (?=\S)", "    ", text, flags=re.MULTILINE) if indent == "   " else text


def _links(text: str, home: str, source: str, files: Files) -> str:
    def replaced(found: re.Match[str]) -> str:
        link = found[2]
        if ELSEWHERE.match(link):
            return found[0]
        path, mark, anchor = link.partition("#")
        target = _on_the_site(posixpath.normpath(posixpath.join(posixpath.dirname(home), path)), files)
        if target is None:
            return found[0]
        return f"{found[1]}{posixpath.relpath(target, posixpath.dirname(source) or '.')}{mark}{anchor}{found[3]}"

    return LINK.sub(replaced, text)


def _on_the_site(name: str, files: Files) -> str | None:
    """The page for a file or folder of the repository. None: the link stays as it is, and MkDocs
    says so if it leads nowhere."""
    name = name.rstrip("/")
    if name in FRONT:
        return "README.md"
    inside = name.removeprefix("docs/") if name.startswith("docs/") else None
    for candidate in (inside, inside and f"{inside}/README.md", site_name(name), f"repository/{name}/README.md"):
        if candidate and candidate in files.src_uris:
            return candidate
    return None
