"""Repairs a docket whose keys somebody has overwritten: the careful form of a script sets damaged
keys aside (docs/design/damaged-data.md)."""

from __future__ import annotations

import logging
from functools import cache
from importlib.resources import files
from typing import Any

from .keys import OWN_NAMES, bytes_text
from .scripts import Line, Script, numbered, remember, script_of

logger: logging.Logger = logging.getLogger("docket.storage")

# Texts of errors after which the careful form may help.
_DAMAGE_TEXTS = ("WRONGTYPE", "not an integer", "would overflow")
_HERE = "repairs.py", 0


def is_damage(error: BaseException) -> bool:
    """Whether a script failed because a key or a field has other data than docket writes."""
    text = str(error)
    return any(words in text[:200] for words in _DAMAGE_TEXTS)


@cache
def careful_form(script: Script) -> Script:
    """The script with commands that set damaged keys aside. It answers with the script's own answer
    and the names of what it has set aside."""
    names = ", ".join(f"['{name}'] = true" for name in OWN_NAMES)
    lines = [
        *(Line(text.replace("= OWN_NAMES", f"= {{{names}}}"), file, number) for text, file, number in _beginning()),
        Line("local function script()", *_HERE),
        *(
            Line(_carefully(text), file, number)
            for text, file, number in script.lines or numbered(script.name, script.source)
        ),
        *(Line(text, *_HERE) for text in ("end", "local answer = script()", "return {answer, set_aside}")),
    ]
    return remember(script_of(f"{script.name} (careful)", lines))


def _beginning() -> list[Line]:
    file = "forms/careful.lua"
    return numbered(file, (files("docket.storage") / "lua" / file).read_text())


def _carefully(code: str) -> str:
    return code.replace("redis.pcall", "careful_pcall").replace("redis.call", "careful_call")


def unwrap(reply: list[Any], root: bytes) -> Any:
    """The script's own answer. Logs what the careful form has set aside."""
    answer, set_aside = reply
    for name in set_aside:
        key, _, field = bytes_text(name).partition(" ")
        prefix = bytes_text(root)
        if field:
            logger.error("%s: the field %r had data that docket did not write; it was deleted", f"{prefix}{key}", field)
        else:
            logger.error(
                "%s%s had data that docket did not write; it is %sdamaged:=%s for a week, and the work goes on",
                prefix, key, prefix, key.replace("%", "%25").replace(":", "%3A"),
            )  # fmt: skip
    return answer
