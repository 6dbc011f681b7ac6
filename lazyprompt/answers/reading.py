"""Readers that parse a model's response marker by marker, in OpenAI's harmony format or in any other format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from lazyprompt.answers.calls import FIRST, READERS, AnswerPlan, Body, CallReader
from lazyprompt.answers.source import SPACE, SPACES, StreamedText, Waiting, cuts_of

if TYPE_CHECKING:
    from lazyprompt.answers.forms import Calls
    from lazyprompt.answers.message_builder import MessageBuilder, WrittenCall

# Characters to remove after arguments, such as extra closing brackets and the end of a code fence.
_LEFT_OVER = SPACE + ",;]})`"
_HEAD = re.compile(r'[^{"]*')
_LETTERS = re.compile(r"[a-z]*")
_NAME = re.compile(r"[\w.-]*")
# The maximum length of a line that is parsed as a tool name, in characters.
_LONGEST_NAME = 128


_OVER = object()


class AnswerReader(Protocol):
    """A reader that parses a response in chunks."""

    builder: MessageBuilder
    """The builder that contains the message parsed so far."""

    def feed(self, chunk: str) -> bool:
        """Read a chunk; return True if a marker ended the response."""
        ...

    def end(self) -> None:
        """Read the text that was held back until the end of the response."""
        ...


class FormReader:
    """A reader for responses in a known format.

    Args:
        plan: The response format and the known tools.
        builder: The builder for the parsed message.
    """

    __slots__ = ("_reading", "_source", "builder")

    def __init__(self, plan: AnswerPlan, builder: MessageBuilder) -> None:
        self.builder = builder
        self._source = StreamedText(plan.final)
        reading = HarmonyReading if plan.form.channels else MarkerReading
        self._reading = reading(plan, self._source, builder).read()

    def feed(self, chunk: str) -> bool:
        """Read a chunk; return True if a marker ended the response."""
        self._source.feed(chunk)
        return next(self._reading, _OVER) is _OVER

    def end(self) -> None:
        """Read the text that was held back until the end of the response."""
        self._source.end()
        next(self._reading, None)


class MarkerReading(CallReader):
    """A parser for responses whose parts are separated by markers.

    Reasoning starts only at the start of the response, or after a call or other reasoning. Reasoning ends only at its
    own end marker, so it never contains a call. A call without a marker must be at the start of the response.

    Args:
        plan: The response format and the known tools.
        source: The streamed text.
        builder: The builder for the parsed message.
    """

    def __init__(self, plan: AnswerPlan, source: StreamedText, builder: MessageBuilder) -> None:
        super().__init__(plan, source, builder)
        self._opening, self._closing = plan.form.thought or ("", "")
        self._bare = bool(plan.form.bare)

    def read(self) -> Waiting[None]:
        """Read the whole response."""
        source, builder, plan = self._source, self._builder, self._plan
        if plan.begins == "thought":
            yield from self._thought(prompted=True)
        elif plan.begins == "either":
            yield from self._either()
        while True:
            source.cuts = plan.text
            if self._bare and builder.fresh:
                yield from self._bare_call()
            marker = yield from source.copy(builder.text)
            if not marker or marker in plan.final:
                return
            source.skip(marker)
            yield from self._marked(marker)

    def _marked(self, marker: str) -> Waiting[None]:
        """Read the text that follows a marker."""
        builder = self._builder
        if marker in self._plan.calls:
            yield from self._calls(self._plan.calls[marker])
        elif marker == self._opening and builder.fresh:
            yield from self._thought()
        elif marker in self._form.drop:
            if self._form.bare:
                builder.close()
                self._bare = True
        elif not (builder.called and any(marker == calls.end for calls in self._form.calls)):
            builder.text(marker)

    def _either(self) -> Waiting[None]:
        """Read up to the first marker; if this marker ends reasoning, all text before it is reasoning."""
        source, builder = self._source, self._builder
        source.cuts = self._plan.either
        before, marker = yield from source.rest()
        if marker and marker == self._closing:
            source.skip(marker)
            builder.thinking(before)
            builder.close()
        else:
            builder.text(before)

    def _thought(self, *, prompted: bool = False) -> Waiting[None]:
        """Read a reasoning section to its end."""
        source, builder = self._source, self._builder
        source.cuts = self._plan.prompted_thought if prompted else self._plan.thought
        builder.close()
        while True:
            marker = yield from source.copy(builder.thinking)
            if marker not in self._plan.final:
                source.skip(marker)
            if not marker or marker != self._opening:
                builder.close()
                return
            if not builder.fresh:
                builder.thinking(marker)

    def _calls(self, calls: Calls) -> Waiting[None]:
        """Read the text after a start marker as calls, or as text if it can't be parsed."""
        source, builder = self._source, self._builder
        source.cuts = self._plan.bodies[calls.start]
        source.at -= len(calls.keep)
        before = calls.start.removesuffix(calls.keep) + (yield from source.run(SPACES))
        first = yield from source.peek()
        opens = {sign for body in calls.bodies for sign in FIRST.get(body, "")}
        if calls.head and first not in opens:
            yield from self._headed(calls, before)
            return
        if not first or (opens and first not in opens and all(body in FIRST for body in calls.bodies)):
            builder.text(before)
            return
        raw = ""
        if "json" in calls.bodies and first in "{[":
            count, raw = yield from self._json_calls(bare=calls.known_tools)
            if count:
                yield from self._left_over(calls, raw)
                return
            if calls.known_tools:
                builder.text(before + raw)
                return
        yield from self._body(calls, before, raw)

    def _body(self, calls: Calls, before: str, raw: str) -> Waiting[None]:
        """Read all text up to the end marker, and parse it as calls."""
        source, builder = self._source, self._builder
        rest, marker = yield from source.rest(calls.quote)
        body = Body(raw + rest, bool(marker) and marker == calls.end, self._tools)
        written: list[WrittenCall] = []
        for kind in calls.bodies:
            written = written or (READERS[kind](body) if kind in READERS else [])
        for call in written:
            builder.call(call)
        if body.whole:
            source.skip(marker)
        if not written and body.whole and calls.plain:
            builder.text(body.text)
            builder.close()
            self._bare = bool(self._form.bare)
        elif not written:
            builder.text(before + body.text + (marker if body.whole else ""))

    def _left_over(self, calls: Calls, raw: str = "") -> Waiting[None]:
        """Read the text between a call and its end marker, and drop superfluous closing brackets."""
        source = self._source
        if calls.end:
            rest, marker = yield from source.rest()
            raw += rest
            if marker == calls.end:
                source.skip(marker)
            elif not marker and calls.end.startswith(raw.strip(_LEFT_OVER)):
                return  # The response ended inside the call's end marker.
        if raw.strip(_LEFT_OVER + "[{"):
            self._builder.text(raw.lstrip(_LEFT_OVER))

    def _headed(self, calls: Calls, before: str) -> Waiting[None]:
        """Read a call whose name precedes its arguments."""
        head = yield from self._source.run(_HEAD)
        match = re.match(calls.head, head)
        has_object = match and match[0] == head and (yield from self._source.peek()) == "{"
        if match is None or not (has_object or (calls.separator and calls.separator in match[0])):
            self._builder.text(before + head)
            return
        name, own_id = match["name"], match.groupdict().get("id") or ""
        yield from self._arguments(name, "" if own_id == name else own_id, head[match.end() :])
        yield from self._left_over(calls)

    def _bare_call(self) -> Waiting[None]:
        """Read a tool call without a start marker; text that isn't part of such a call becomes message text."""
        source, builder, forms = self._source, self._builder, self._form.bare
        builder.text((yield from source.run(SPACES)))
        first = yield from source.peek()
        if len(first) != 1:
            # Only a marker or the end of the text follows. Keep ``_bare`` set, because a tool call may follow a
            # reasoning section.
            return
        self._bare = False
        if "line" in forms:
            yield from self._line_call()
            return
        opened = source.take(source.at + 1) + (yield from source.run(SPACES)) if first == "[" else ""
        if "json" in forms and (yield from source.peek()) == "{":
            count, raw = yield from self._json_calls(opened, bare=True)
            if not count or raw.strip(_LEFT_OVER):
                builder.text(raw)
        elif opened and "python" in forms:
            yield from self._python_calls(opened)
        else:
            builder.text(opened)

    def _python_calls(self, opened: str) -> Waiting[None]:
        """Read a list of Python calls after its opening bracket; text that can't be parsed as calls remains text."""
        source, builder, tools = self._source, self._builder, self._tools
        name = yield from source.run(_NAME)
        raw = [opened, name]
        if tools.may_be(name) and (yield from source.peek()) == "(":
            yield from source.value(raw.append, python=True, depth=1)
            # If the tool names are unknown, accept unmarked calls only if the arguments of all calls can be parsed.
            calls = READERS["python"](Body("".join(raw), whole=True, tools=tools))
            if calls and all(tools.may_be(call.name) and (tools.known or call.arguments is not None) for call in calls):
                for call in calls:
                    builder.call(call)
                return
        builder.text("".join(raw))

    def _line_call(self) -> Waiting[None]:
        """Read a tool name with JSON on the next line; anything else becomes text."""
        name = yield from self._source.run(_NAME)
        space = yield from self._source.run(SPACES)
        is_call = self._tools.may_be(name) and len(name) <= _LONGEST_NAME and space.startswith("\n")
        if is_call and (yield from self._source.peek()) == "{":
            yield from self._arguments(name)
        else:
            self._builder.text(name + space)


_START, _CHANNEL, _MESSAGE, _END, _CALL = "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"
_IN_HEADER = frozenset((_CHANNEL, "<|constrain|>"))
_ROLE = re.compile(r"<\|start\|>\s*([^\s<]*)")
_THOUGHT = re.compile(r"<\|channel\|>\s*analysis(?![^\s<])")
_RECIPIENT = re.compile(r"(?:^|\s|\|>)to=([^\s<]+)")
# The recipients in harmony message headers that aren't tools.
_PEOPLE = frozenset(("assistant", "user", "all"))


class HarmonyReading(CallReader):
    """A parser for OpenAI's harmony format, in which each message has a header with its channel and recipient.

    An assistant message in the ``analysis`` channel is reasoning, and a message to a tool is a call. All other messages
    are text. A message with a different role ends the response. After a call, any content except another call also ends
    the response. Source: docs/format.md in openai/harmony.

    Args:
        plan: The response format and the known tools.
        source: The streamed text.
        builder: The builder for the parsed message.
    """

    def __init__(self, plan: AnswerPlan, source: StreamedText, builder: MessageBuilder) -> None:
        super().__init__(plan, source, builder)
        source.cuts = cuts_of(plan.final | _IN_HEADER | {_START, _MESSAGE, _END, _CALL})

    def read(self) -> Waiting[None]:
        """Read the whole response."""
        source, builder = self._source, self._builder
        called = False
        if self._plan.begins == "thought":
            yield from source.copy(builder.thinking)
            builder.close()
        begun = yield from self._begun()
        while True:
            # Add text between messages to the response, unless the model is waiting for a tool result.
            if not begun:
                between: list[str] = []
                marker = yield from source.copy(between.append if called else builder.text)
                if not marker or marker in source.final or "".join(between).strip(SPACE):
                    return
                if marker in (_END, _CALL):
                    source.skip(marker)
                    called = called or marker == _CALL
                    continue
            header, whole = yield from self._header(begun)
            begun = ""
            role, recipient = _ROLE.match(header), _RECIPIENT.search(header)
            tool = recipient[1].removeprefix("functions.") if recipient and recipient[1] not in _PEOPLE else ""
            if (role and role[1] != "assistant") or (called and not tool):
                return
            if not whole:
                builder.text(header)
                continue
            builder.close()
            if tool:
                yield from source.run(SPACES)
                yield from self._arguments(tool)
            else:
                yield from source.copy(builder.thinking if _THOUGHT.search(header) else builder.text)
            builder.close()

    def _begun(self) -> Waiting[str]:
        """Read the word ``to`` if it continues a message header that the prompt started.

        Add any other text to the message and return an empty string.
        """
        source = self._source
        begun = (yield from source.run(SPACES)) + (yield from source.run(_LETTERS))
        if begun.lstrip(SPACE) == "to" and (yield from source.peek()) == "=":
            return begun
        self._builder.text(begun)
        return ""

    def _header(self, begun: str) -> Waiting[tuple[str, bool]]:
        """Read a header; return its text, and True if the header is complete."""
        source = self._source
        pieces = [begun]
        while True:
            marker = yield from source.copy(pieces.append)
            if marker == _MESSAGE:
                source.skip(marker)
                return "".join(pieces), True
            if marker not in _IN_HEADER and (marker != _START or "".join(pieces)):
                return "".join(pieces), False
            pieces.append(marker)
            source.skip(marker)
