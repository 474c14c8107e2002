"""A folder is a room that one can overlook: it has at most 40 modules. A name of a class means one
thing: no two classes of the package share it.

A module that only one other imports may be small: an entry point, a lazy import or an optional
package needs a file of its own, so the linter does not count importers.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from lint.exceptions import Exceptions
from lint.source import files

MODULES = 40
# The sync API has the names of the async one.
TWINS = "docket/sync/"

# Folders and classes that break a rule, with the reason.
EXCEPTIONS: dict[str, str] = {
    "docket/storage/lua": "a file for each script, named after its verb",
}


def check() -> Iterator[str]:
    exceptions = Exceptions("rooms.py", EXCEPTIONS)
    for folder, count in folders().items():
        if count > MODULES and not exceptions.allow(folder):
            yield f"{folder}: {count} modules, at most {MODULES}: give an idea a sub-package of its own"
    for name, places in classes().items():
        if len(places) > 1 and not exceptions.allow(name):
            yield f"{name}: a class in {' and in '.join(places)}; one name means one thing"
    yield from exceptions.unneeded()


def folders() -> Counter[str]:
    """The number of modules and scripts in each folder."""
    paths = [path for suffix in (".py", ".lua") for path, _ in files(suffix)]
    return Counter(PurePosixPath(path).parent.as_posix() for path in paths)


def classes() -> dict[str, list[str]]:
    """The modules of each class. A class of the sync API counts only besides another sync class."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    twins: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in files(".py"):
        for node in ast.walk(ast.parse(text, path)):
            if isinstance(node, ast.ClassDef) and path.startswith("docket/"):
                (twins if path.startswith(TWINS) else found)[node.name].append(path)
    return {**found, **{name: places for name, places in twins.items() if len(places) > 1}}
