"""Three hundred keys that somebody could have chosen to hurt us."""

from __future__ import annotations

from docket.storage.keys import OWN_NAMES

_SEGMENTS = [suffix.removesuffix(":=") for suffix in OWN_NAMES]
_ODD = [
    "",
    " ",
    "\0",
    "\0\0",
    "a\0b",
    "\n",
    "a\nb",
    "\r\n",
    "\t",
    "'",
    '"',
    "\\",
    "\\u0000",
    "`",
    "$",
    "$(reboot)",
    "%",
    "%%",
    "%25",
    "%3A",
    "%3a",
    "%0A",
    ":",
    "::",
    ":=",
    "=",
    "=a",
    "{}",
    "{",
    "}",
    "{a}",
    "{a}b",
    "}{",
    "*",
    "?",
    "[a-z]",
    "a*",
    ">",
    "-",
    "+",
    "0",
    "0-0",
    "-1",
    "1e3",
    "nan",
    "inf",
    "None",
    "null",
    "true",
    "false",
    "w",
    "r1",
    "k",
    "é",
    "ß",
    "ſ",
    "İ",
    "Ω",
    "\u200b",
    "\u202e",
    "\ufeff",
    "🦊",
    "👩‍👩‍👧",
    "e\u0301",
    "\u00e9",
    "\ud800",
    "\udfff",
    "a\udc80b",
    "\udfff\ud800",
    "x" * 512,
    "é" * 256,
    "x" * 511 + ":",
    "/",
    "../..",
    "task/x",
    "docket/0/1:a/task/x",
    "GET a",
    "*1\r\n$4\r\nPING\r\n",
    '{"type":"state"}',
    '","state":"failed"}',
    "<script>",
    "a b",
    "1 a",
]


def hostile_keys() -> list[str]:
    """Names of our own keys alone, with things round them, and oddities."""
    keys = list(_ODD)
    for name in _SEGMENTS:
        keys += [name, f"{name}:x", f"{name}:=x", f"a:{name}", f":{name}", f"x:=:{name}", f"{name}:={name}"]
    keys += [f"k{i}:{'%' * (i % 5)}{{{i}}}" for i in range(300)]
    unique = list(dict.fromkeys(keys))[:300]
    assert len(unique) == 300
    return unique
