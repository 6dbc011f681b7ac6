"""Literals of Python, and of Gemma 4's own form, read without running anything.

``ast`` is not used: on a hostile text it exhausts memory or the stack, and it warns of escapes that it does not know.
What is read here is what calls hold: text, numbers, true, false and nothing, lists and dicts, as deep as JSON may be.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.json import MAX_DEPTH

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<gemma><\|"\|>(?s:.*?)<\|"\|>)
      | (?P<text>(?P<prefix>[rRuU]?)(?:'''(?s:(?:[^\\]|\\.)*?)'''|\"""(?s:(?:[^\\]|\\.)*?)\"""
            |'(?:[^'\\\n]|\\(?s:.))*'|"(?:[^"\\\n]|\\(?s:.))*"))
      | (?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
      | (?P<word>[^\W\d][\w.-]*)
      | (?P<sign>[()\[\]{},:=])
    )""",
    re.VERBOSE,
)
# What stands between brackets, whatever it is: quotes, one bracket, or anything else.
_BRACKETED = re.compile(r"""'(?:[^'\\\n]|\\.)*'?|"(?:[^"\\\n]|\\.)*"?|[()\[\]{}]|[^'"()\[\]{}]+""", re.DOTALL)
_GEMMA_QUOTE = '<|"|>'
# Python's words, and JSON's, which get mixed in.
_WORDS: dict[str, Json] = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|((?s:.)))")
_ESCAPES = dict(zip("abfnrtv\\'\"\n", "\a\b\f\n\r\t\v\\'\"", strict=False)) | {"\n": ""}


class PythonCall(NamedTuple):
    """A call as Python writes it: the name, the text between its brackets, and the arguments where all have names."""

    name: str
    raw: str
    arguments: JsonObject | None


def literal(text: str) -> Json:
    """The value of a Python literal.

    Args:
        text: The literal, and nothing else.

    Returns:
        The value; tuples are lists.

    Raises:
        ValueError: It is none.
    """
    reader = _Reader(text)
    value = reader.value()
    reader.end()
    return value


def gemma_object(text: str) -> JsonObject:
    """The same as :func:`literal` for an object of Gemma 4's: keys without quotes, texts between ``<|"|>``."""
    reader = _Reader(text, words=True)
    value = reader.value()
    reader.end()
    if not isinstance(value, dict):
        raise ValueError(text)  # noqa: TRY004 - it is the value that is wrong
    return value


def python_calls(text: str) -> list[PythonCall]:
    """The calls in a text such as ``[f(a=1), g()]``.

    Args:
        text: The list, or a single call.

    Returns:
        The calls.

    Raises:
        ValueError: It is no list of calls.
    """
    reader = _Reader(text)
    listed = reader.sign("[")
    calls = [reader.call()]
    while reader.sign(",") and not (listed and reader.next_is("]")):
        calls.append(reader.call())
    if listed and not reader.sign("]"):
        raise ValueError(text)
    reader.end()
    return calls


class _Reader:
    """Reads a text token by token.

    Args:
        text: The text.
        words: Whether a word without quotes is text, as Gemma writes it now and then.
    """

    def __init__(self, text: str, *, words: bool = False) -> None:
        self._text = text
        self._at = 0
        self._words = words

    def _token(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(self._text[self._at : self._at + 20])
        return match

    def next_is(self, sign: str) -> bool:
        """Whether a sign comes next."""
        match = _TOKEN.match(self._text, self._at)
        return match is not None and match["sign"] == sign

    def sign(self, sign: str) -> bool:
        """Read a sign, if it comes next."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["sign"] != sign:
            return False
        self._at = match.end()
        return True

    def _need(self, sign: str) -> None:
        if not self.sign(sign):
            raise ValueError(sign)

    def _word(self) -> str:
        match = self._token()
        if not match["word"]:
            raise ValueError(match[0])
        self._at = match.end()
        return match["word"]

    def end(self) -> None:
        """Raise ``ValueError`` where something follows."""
        if self._text[self._at :].strip():
            raise ValueError(self._text[self._at :])

    def call(self) -> PythonCall:
        """Read a call; where its arguments cannot be read, up to the bracket that closes it."""
        name = self._word()
        self._need("(")
        start = self._at
        try:
            arguments: JsonObject | None = self._named()
        except ValueError:
            arguments = None
            self._at = start
            self._skip()
        return PythonCall(name, self._text[start : self._at - 1], arguments)

    def _named(self) -> JsonObject:
        arguments: JsonObject = {}
        while not self.sign(")"):
            name = self._word()
            self._need("=")
            arguments[name] = self.value()
            if not self.next_is(")"):
                self._need(",")
        return arguments

    def _skip(self) -> None:
        """Read up to the bracket that closes what is open."""
        depth = 1
        while depth:
            match = _BRACKETED.match(self._text, self._at)
            if match is None:
                raise ValueError(self._text)
            self._at = match.end()
            depth += (match[0] in "([{") - (match[0] in ")]}")

    def value(self, depth: int = 0) -> Json:
        """Read a value."""
        if depth > MAX_DEPTH:
            raise ValueError(depth)
        match = self._token()
        self._at = match.end()
        match match.lastgroup:
            case "gemma":
                return match["gemma"].removeprefix(_GEMMA_QUOTE).removesuffix(_GEMMA_QUOTE)
            case "number":
                return _number(match["number"])
            case "word":
                if not self._words and match["word"] not in _WORDS:
                    raise ValueError(match["word"])
                return _WORDS.get(match["word"], match["word"])
            case "sign":
                return self._nested(match["sign"], depth)
            case _:
                return "".join(chain([_unescaped(match)], self._more_text()))

    def _more_text(self) -> list[str]:
        """The texts that follow at once, which Python reads as one."""
        texts: list[str] = []
        while (match := _TOKEN.match(self._text, self._at)) and match["text"]:
            self._at = match.end()
            texts.append(_unescaped(match))
        return texts

    def _nested(self, sign: str, depth: int) -> Json:
        if sign == "{":
            return self._object(depth)
        if sign not in "[(":
            raise ValueError(sign)
        closing = "]" if sign == "[" else ")"
        items: list[Json] = []
        group = sign == "("
        while not self.sign(closing):
            items.append(self.value(depth + 1))
            if not self.next_is(closing):
                self._need(",")
                group = False
        return items[0] if group and items else items

    def _object(self, depth: int) -> JsonObject:
        found: JsonObject = {}
        while not self.sign("}"):
            match = self._token()
            value = match["word"] or self.value(depth + 1)
            key = match["word"] or match["number"] or value
            if not isinstance(key, str):
                raise ValueError(key)  # noqa: TRY004 - it is the value that is wrong
            self._at = max(self._at, match.end())
            self._need(":")
            found[key] = self.value(depth + 1)
            if not self.next_is("}"):
                self._need(",")
        return found


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    return int(digits) if digits.lstrip("+-").isdecimal() else float(digits)


def _unescaped(match: re.Match[str]) -> str:
    quoted = match["text"].removeprefix(match["prefix"])
    size = 3 if quoted[:3] in ("'''", '"""') and len(quoted) > 5 else 1  # noqa: PLR2004 - two of three quotes each
    inner = quoted[size:-size]
    if match["prefix"] in ("r", "R") or "\\" not in inner:
        return inner
    # In JSON, which this is used for as well, two escapes may stand for one sign.
    return _ESCAPE.sub(_escape, inner).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code or match[4]:
        number = int(code, 16) if code else int(match[4], 8)
        return chr(number) if number < 0x110000 else match[0]  # noqa: PLR2004 - the end of Unicode
    # An escape that Python does not know stays as it is written.
    return _ESCAPES.get(match[5], match[0])
