"""Makes the description of the package out of README.md: on an index page a link into the repository leads nowhere."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# `![text](target)` or `[text](target)`, unless the target is an address or a place on the same page.
_RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z+]+:|#)([^)\s]+)\)")


def description(readme: str, source: str | None) -> str:
    """Relative links become links into the source's repository or, as long as that has no address, plain text."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        if source is None:
            return text
        return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/main/{target})"

    return _RELATIVE.sub(absolute, readme)


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(readme, source)}
