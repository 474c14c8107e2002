"""Check that every relative link in the repository's Markdown files leads to a file that exists."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1[`~]*$", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#")


def pages() -> Iterator[Path]:
    for page in sorted(ROOT.rglob("*.md")):
        if not any(part.startswith(".") for part in page.relative_to(ROOT).parts):
            yield page


def relative_links(page: Path) -> Iterator[str]:
    prose = INLINE_CODE.sub("``", FENCED.sub("", page.read_text(encoding="utf-8")))
    for inline, reference in LINK.findall(prose):
        link = inline or reference
        if not ELSEWHERE.match(link):
            yield link


def target(page: Path, link: str) -> Path:
    path = unquote(re.split(r"[#?]", link, maxsplit=1)[0])
    return ROOT / path.lstrip("/") if path.startswith("/") else page.parent / path


def main() -> int:
    checked = [(page, link) for page in pages() for link in relative_links(page)]
    broken = [(page, link) for page, link in checked if not target(page, link).exists()]
    for page, link in broken:
        print(f"{page.relative_to(ROOT)}: {link} does not exist", file=sys.stderr)
    print(f"{len(checked)} relative links, {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
