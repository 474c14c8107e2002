"""Sets the package's URLs and description. GitHub gives its workflows the address of the
repository, so packages that are built there link to it. Other packages have no URLs, and the
relative links of README.md become plain text in them.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# `![text](target)` or `[text](target)`, unless the
# target is a URL or an anchor on the same page.
_RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z+]+:|#)([^)\s]+)\)")


def description(readme: str, source: str | None) -> str:
    """Turns relative links into links to the repository,
    or into plain text if its address is unknown."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        if source is None:
            return text
        return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/main/{target})"

    return _RELATIVE.sub(absolute, readme)


def urls(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the pages of the repository that builds the
    package, or none if its address is unknown."""
    if not (repository := environment.get("GITHUB_REPOSITORY")):
        return {}
    source = f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
    return {
        "Source": source,
        "Documentation": f"{source}/blob/main/docs/README.md",
        "Changelog": f"{source}/blob/main/CHANGELOG.md",
        "Issues": f"{source}/issues",
    }


class RepositoryHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["urls"] = urls(os.environ)
        source = metadata["urls"].get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(readme, source)}
