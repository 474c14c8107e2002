"""As much of Lua as it takes to tell which definition a name means: tokens, blocks and `local`s."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"(?P<hidden>--[^\n]*|\s+)"
    r"|(?P<text>'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<number>0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.])"
)
_KEYWORDS = re.compile(
    "and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while"
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int

    @property
    def is_name(self) -> bool:
        return self.kind == "name" and not _KEYWORDS.fullmatch(self.text)


def tokens(source: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        assert match is not None, f"what is {source[at : at + 20]!r}?"
        kind = match.lastgroup
        assert kind is not None
        if kind != "hidden":
            found.append(Token(kind, match[0], at))
        at = match.end()
    return found


@dataclass(eq=False)
class Scope:
    """A block, with its locals as they stand."""

    outer: Scope | None
    locals: dict[str, Local] = field(default_factory=dict[str, "Local"])

    def path(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


@dataclass(eq=False)
class Local:
    """One `local` statement with its first line, or a loop's names or a function's parameters, and
    the blocks that use them."""

    names: tuple[str, ...]
    line: str
    scope: Scope
    uses: list[Scope] = field(default_factory=list[Scope])


class Reading:
    """Which `local` each name of a source means. `unknown`
    are those that none precedes in a block around them.

    A `local x = x` counts as one that uses itself.
    """

    def __init__(self, source: str) -> None:
        self.locals: list[Local] = []
        self.unknown: set[str] = set()
        self.twice: list[str] = []
        self._source = source
        self._tokens = [*tokens(source), Token("sign", "", len(source))]
        self._at = 0
        self._scope = Scope(None)
        self._brackets: list[str] = []
        self._loop: Local | None = None
        while self._at < len(self._tokens) - 1:
            self._step()
        assert self._scope.outer is None, "a block has no end"

    def _step(self) -> None:
        token, after = self._tokens[self._at], self._tokens[self._at + 1]
        before = self._tokens[self._at - 1].text if self._at else ""
        self._at += 1
        if token.text == "local":
            is_function = after.text == "function"
            line = self._source[token.at :].partition("\n")[0]
            self._at += is_function
            self._declare(self._local(line))
            if is_function:
                self._function()
        elif token.text == "for":
            self._loop = self._local()
        elif token.text == "function":
            self._function()
        elif token.is_name:
            is_field = before in (".", ":")
            is_key = after.text == "=" and self._brackets[-1:] == ["{"] and before in ("{", ",", ";")
            if not is_field and not is_key:
                self._use(token.text)
        elif token.kind != "text":
            self._sign(token.text)

    def _sign(self, text: str) -> None:
        if text in ("end", "elseif", "else", "until"):
            assert self._scope.outer is not None, "an end too many"
            self._scope = self._scope.outer
        if text in ("do", "then", "else", "repeat"):
            self._scope = Scope(self._scope)
        if text == "do" and self._loop is not None:
            self._loop.scope = self._scope
            self._declare(self._loop)
            self._loop = None
        if text in ("(", "{", "["):
            self._brackets.append(text)
        elif text in (")", "}", "]"):
            self._brackets.pop()

    def _function(self) -> None:
        """From its parameters on."""
        while self._tokens[self._at].text != "(":
            self._at += 1
        self._at += 1
        self._scope = Scope(self._scope)
        self._declare(self._local())
        while self._tokens[self._at].text != ")":
            self._at += 1
        self._at += 1

    def _local(self, line: str = "") -> Local:
        """The names that follow."""
        names: list[str] = []
        while self._tokens[self._at].is_name:
            names.append(self._tokens[self._at].text)
            self._at += 1
            if self._tokens[self._at].text == ",":
                self._at += 1
        return Local(tuple(names), line, self._scope)

    def _declare(self, local: Local) -> None:
        self.locals.append(local)
        self.twice += [name for name in local.names if name in self._scope.locals]
        self._scope.locals |= dict.fromkeys(local.names, local)

    def _use(self, name: str) -> None:
        for scope in self._scope.path():
            if name in scope.locals:
                scope.locals[name].uses.append(self._scope)
                return
        self.unknown.add(name)


def common(scopes: list[Scope]) -> Scope:
    """The innermost block round all of them."""
    shared = [set(scope.path()) for scope in scopes]
    return next(scope for scope in scopes[0].path() if all(scope in path for path in shared))
