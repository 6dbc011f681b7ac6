"""How an answer in OpenAI's harmony is read: messages with headers that name their channel and their recipient.

Source: openai/harmony, docs/format.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.answers._json_calls import Nested
from lazyprompt.answers._said import WrittenCall, arguments_of
from lazyprompt.answers._source import SPACE, SPACES, cuts_of

if TYPE_CHECKING:
    from lazyprompt.answers._reading import Plan
    from lazyprompt.answers._said import Said
    from lazyprompt.answers._source import Source, Waiting

_START, _CHANNEL, _MESSAGE, _END, _CALL = "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"
_IN_HEADER = frozenset((_CHANNEL, "<|constrain|>"))
_RECIPIENT = re.compile(r"(?:^|\s)to=([^\s<]+)")
_WORD = re.compile(r"\s*([^\s<]*)")
_LETTERS = re.compile(r"[a-z]*")
_TO = "to="
# Recipients that are no tools.
_PEOPLE = frozenset(("", "assistant", "user", "all"))


class _Header(NamedTuple):
    """The header of a message: who speaks, in which channel, to which tool."""

    role: str
    channel: str
    tool: str


def _header(text: str) -> _Header:
    """A header as it is written; where the prompt began it, without its ``<|start|>``."""
    before, _, behind = text.partition(_CHANNEL)
    role = before.removeprefix(_START) if before.startswith(_START) else f"assistant {before}"
    recipient = _RECIPIENT.search(f"{before} {behind}")
    name = recipient[1] if recipient else ""
    return _Header(_word(role), _word(behind), "" if name in _PEOPLE else name.removeprefix("functions."))


def _word(text: str) -> str:
    match = _WORD.match(text)
    return match[1] if match else ""


class HarmonyReading:
    """Reads an answer in harmony.

    What the assistant says in ``analysis`` is a thought, what it says to a tool is a call, all else is text. A message
    of another role is one that the model made up, and ends the answer; so does anything but a further call behind a
    call.

    Args:
        plan: What is known of the answer.
        source: The text.
        said: Is told what it says.
    """

    def __init__(self, plan: Plan, source: Source, said: Said) -> None:
        self._source = source
        self._said = said
        self._final = plan.final
        self._thinks = plan.begins == "thought"
        self._cuts = cuts_of(plan.final | _IN_HEADER | {_START, _MESSAGE, _END, _CALL})

    def read(self) -> Waiting[None]:
        """Read the whole answer."""
        source, said = self._source, self._said
        called = False
        if self._thinks:
            yield from self._said_in(_Header("assistant", "analysis", ""))
            said.close()
        begun = yield from self._begun()
        while True:
            # Between messages there is nothing; what is there all the same is text, unless a tool was to answer.
            if not begun:
                end, marker = yield from source.span(self._cuts)
                between = source.take(end)
                if called and between.strip(SPACE):
                    return
                said.text("" if called else between)
                if marker is None:
                    continue
                if not marker or marker in self._final:
                    return
                if marker in (_END, _CALL):
                    source.skip(marker)
                    called = called or marker == _CALL
                    continue
            written, whole = yield from self._written_header(begun)
            begun = ""
            header = _header(written)
            if header.role != "assistant" or (called and not header.tool):
                return
            if not whole:
                said.text(written)
                continue
            said.close()
            yield from self._said_in(header)
            said.close()

    def _begun(self) -> Waiting[str]:
        """What stands at the beginning of a header that the prompt began; ``""`` if it is no header."""
        source, said = self._source, self._said
        space = yield from source.run(SPACES, self._cuts)
        word = yield from source.run(_LETTERS, self._cuts)
        sign = yield from source.peek(self._cuts)
        if word + sign == _TO:
            return space + word
        said.text(space + word)
        return ""

    def _written_header(self, begun: str) -> Waiting[tuple[str, bool]]:
        """A header up to its end, and whether it has one."""
        source = self._source
        pieces = [begun]
        while True:
            end, marker = yield from source.span(self._cuts)
            pieces.append(source.take(end))
            if marker is None:
                continue
            if marker == _MESSAGE:
                source.skip(marker)
                return "".join(pieces), True
            if marker not in _IN_HEADER and (marker != _START or "".join(pieces)):
                return "".join(pieces), False
            pieces.append(marker)
            source.skip(marker)

    def _said_in(self, header: _Header) -> Waiting[None]:
        """Read a message up to the marker behind it."""
        source, said = self._source, self._said
        if header.tool:
            yield from source.run(SPACES, self._cuts)
            if (yield from source.peek(self._cuts)) == "{":
                said.start_call(header.tool, "", sure=True)
                yield from Nested(source, self._cuts, self._final).value(said.arguments)
                said.end_call()
            else:
                raw, _ = yield from source.rest(self._cuts, self._final)
                said.call(WrittenCall(header.tool, raw.rstrip(SPACE), arguments_of(raw)))
            return
        say = said.thinking if header.channel == "analysis" else said.text
        while True:
            end, marker = yield from source.span(self._cuts)
            say(source.take(end))
            if marker is not None:
                return
