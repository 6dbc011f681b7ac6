"""How an answer is read, marker by marker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lazyprompt.answers._json_calls import JsonCalls, Nested
from lazyprompt.answers._said import WrittenCall, arguments_of
from lazyprompt.answers._source import SPACE, SPACES, Cuts, cuts_of
from lazyprompt.answers._written import FIRST, READERS

if TYPE_CHECKING:
    from lazyprompt.answers._said import Said
    from lazyprompt.answers._source import Source, Waiting
    from lazyprompt.answers._tools import Tools
    from lazyprompt.answers.forms import Begins, Calls, Form

# What may be left over behind arguments: brackets closed twice, the fence around them.
_LEFT_OVER = SPACE + ",;]})`"
_HEADER = re.compile(r"[^{]*")
_LINE = re.compile(r"[^\n{]*")
_FENCE = re.compile(r"[`\s]*")
_LETTERS = re.compile(r"[a-z]*")
_NAME = re.compile(r"[\w.-]*")
_KIMI_ID = re.compile(r"(?:functions\.)?([^\s:]+):\d+")
_PLAUSIBLE = re.compile(r"[^\s<>{}()\[\]\"'`,;]+")
# A line that is longer is no name.
_LONGEST_NAME = 128


@dataclass(frozen=True)
class Plan:
    """What a reading needs to know before it begins.

    Args:
        form: The form of the answer.
        begins: Where it begins.
        final: The markers that end it.
        tools: What is known of the tools.
    """

    form: Form
    begins: Begins
    final: frozenset[str]
    tools: Tools

    @cached_property
    def _base(self) -> frozenset[str]:
        # A start that belongs to the body already is no start within the body of another.
        starts = {calls.start for calls in self.form.calls if not calls.keep}
        return self.final.union(starts, self.form.drop)

    @cached_property
    def text(self) -> Cuts:
        """The markers that count in text. Those that end a call are there to be dropped behind one."""
        calls = self.form.calls
        marks = {mark for each in calls for mark in (each.start, each.end)} | set((self.form.thought or ())[:1])
        return cuts_of(self._base | (marks - {""}))

    @cached_property
    def either(self) -> Cuts:
        """The markers that tell whether the prompt had opened a thought."""
        return cuts_of(self._base.union(self.form.thought or (), (calls.start for calls in self.form.calls)))

    @cached_property
    def bodies(self) -> dict[str, Cuts]:
        """The markers that count between those of a call, by the marker that starts it."""
        return {
            calls.start: cuts_of(self._base | ({calls.end, calls.separator, calls.own_id, calls.quote} - {""}))
            for calls in self.form.calls
        }

    def thought(self, *, prompted: bool) -> Cuts:
        """The markers that count in a thought; one that the prompt opened may be opened again."""
        markers = self.form.thought or ()
        return cuts_of(self.final.union(markers if prompted else markers[1:]))


class Reading:
    """Reads an answer.

    A thought begins where nothing but whitespace was said, at the beginning or behind a call or another thought; and it
    ends at its own marker alone, so that nothing in it is a call. A call without a marker stands at the beginning.

    Args:
        plan: What is known of the answer.
        source: The text.
        said: Is told what it says.
    """

    def __init__(self, plan: Plan, source: Source, said: Said) -> None:
        self._plan = plan
        self._form = plan.form
        self._source = source
        self._said = said
        self._starts = {calls.start: calls for calls in plan.form.calls}
        self._ends = {calls.end for calls in plan.form.calls} - {""}
        self._opening = plan.form.thought[0] if plan.form.thought else ""
        # Whether a call without a marker may still begin here.
        self._bare = bool(plan.form.bare)

    def read(self) -> Waiting[None]:
        """Read the whole answer."""
        source, said, plan = self._source, self._said, self._plan
        if plan.begins == "thought":
            yield from self._thought(prompted=True)
        elif plan.begins == "either":
            yield from self._either()
        while True:
            if self._bare and said.fresh:
                yield from self._bare_call()
            end, marker = yield from source.span(plan.text)
            said.text(source.take(end))
            if marker is None:
                continue
            if not marker or marker in plan.final:
                return
            source.skip(marker)
            yield from self._marked(marker)

    def _marked(self, marker: str) -> Waiting[None]:
        """Read what a marker begins."""
        said = self._said
        if marker in self._starts:
            yield from self._calls(self._starts[marker])
        elif marker == self._opening and said.fresh:
            yield from self._thought()
        elif marker in self._form.drop:
            if self._form.bare:
                said.close()
                self._bare = True
        elif not (marker in self._ends and said.called):
            said.text(marker)

    def _either(self) -> Waiting[None]:
        """Read up to where it is clear whether the prompt had opened a thought: only its end marker tells."""
        source, said, plan = self._source, self._said, self._plan
        closing = self._form.thought[1] if self._form.thought else ""
        before, marker = yield from source.rest(plan.either, plan.final)
        if marker == closing and marker:
            source.skip(marker)
            said.thinking(before)
            said.close()
        else:
            said.text(before)

    def _thought(self, *, prompted: bool = False) -> Waiting[None]:
        """Read a thought to its end."""
        source, said, plan = self._source, self._said, self._plan
        cuts = plan.thought(prompted=prompted)
        said.close()
        while True:
            end, marker = yield from source.span(cuts)
            said.thinking(source.take(end))
            if marker is None:
                continue
            if marker and marker == self._opening and prompted:
                source.skip(marker)
                if not said.fresh:
                    said.thinking(marker)
                continue
            if marker and marker not in plan.final:
                source.skip(marker)
            said.close()
            return

    def _calls(self, calls: Calls) -> Waiting[None]:
        """Read what stands behind the start of calls; what cannot be read as calls is text."""
        source, said, cuts = self._source, self._said, self._plan.bodies[calls.start]
        source.at -= len(calls.keep)
        start = calls.start.removesuffix(calls.keep)
        space = yield from source.run(SPACES, cuts)
        first = yield from source.peek(cuts)
        opens = {sign for body in calls.bodies for sign in FIRST.get(body, "")}
        if calls.separator and first not in opens:
            yield from self._headed(calls, start + space)
            return
        if not first or (opens and first not in opens and all(body in FIRST for body in calls.bodies)):
            said.text(start + space)
            return
        raw = ""
        if "json" in calls.bodies and first in ("{", "["):
            json_calls = JsonCalls(self._nested(cuts), said, self._plan.tools, frozenset(self._form.silent))
            count, raw = yield from json_calls.calls()
            if count:
                yield from self._left_over(calls, raw)
                return
        rest, marker = yield from source.rest(cuts, self._plan.final, calls.quote)
        whole = bool(marker) and marker == calls.end
        written = self._written(calls, raw + rest, whole=whole)
        for call in written:
            said.call(call)
        if not written:
            said.text(start + space + raw + rest)
        if whole:
            source.skip(marker)
            if not written:
                said.text(marker)

    def _written(self, calls: Calls, text: str, *, whole: bool) -> list[WrittenCall]:
        """The calls in a text, by the first of the ways that can read it."""
        for body in calls.bodies:
            found = READERS[body](text, whole, self._plan.tools) if body in READERS else []
            if found:
                return found
        return []

    def _nested(self, cuts: Cuts, *, python: bool = False) -> Nested:
        return Nested(self._source, cuts, self._plan.final, python=python)

    def _left_over(self, calls: Calls, raw: str = "") -> Waiting[None]:
        """Read what follows a call up to its end marker; it is text, but for what was merely closed twice."""
        source = self._source
        if calls.end:
            rest, marker = yield from source.rest(self._plan.bodies[calls.start], self._plan.final)
            raw += rest
            if marker == calls.end:
                source.skip(marker)
            elif not marker and calls.end.startswith(raw.strip(_LEFT_OVER)):
                return  # The end marker was cut off.
        if raw.strip(_LEFT_OVER + "[{"):
            self._said.text(raw.lstrip(_LEFT_OVER))

    def _headed(self, calls: Calls, before: str) -> Waiting[None]:
        """Read a call whose name stands before a separator."""
        source, cuts = self._source, self._plan.bodies[calls.start]
        header = yield from source.run(_HEADER, cuts)
        own_id = ""
        read = before + header
        if calls.own_id and (yield from source.peek(cuts)) == calls.own_id:
            source.skip(calls.own_id)
            own_id = yield from source.run(_HEADER, cuts)
            read += calls.own_id + own_id
        reached = yield from source.peek(cuts)
        if reached == calls.separator:
            source.skip(reached)
            read += reached
        if reached in ("{", calls.separator):
            name, own_id, skipped = yield from self._header(calls, header.strip(SPACE), own_id.strip(SPACE))
            read += skipped
            if _PLAUSIBLE.fullmatch(name):
                yield from self._arguments(name, own_id, cuts)
                yield from self._left_over(calls)
                return
        self._said.text(read)

    def _header(self, calls: Calls, header: str, own_id: str) -> Waiting[tuple[str, str, str]]:
        """The name and id in a header, and what was read on for them."""
        source, cuts = self._source, self._plan.bodies[calls.start]
        if calls.header == "kimi":
            match = _KIMI_ID.fullmatch(header)
            return (match[1], header, "") if match else (header, own_id, "")
        if calls.header == "name":
            return header, own_id, ""
        space = yield from source.run(SPACES, cuts)
        if (yield from source.peek(cuts)) == "{" or header != "function":
            return header, own_id, space
        line = yield from source.run(_LINE, cuts)
        fence = yield from source.run(_FENCE, cuts)
        # A fence names its language; without one, what follows are the arguments.
        language = (yield from source.run(_LETTERS, cuts)) if "`" in fence else ""
        return line.strip(SPACE), own_id, space + line + fence + language

    def _arguments(self, name: str, own_id: str, cuts: Cuts) -> Waiting[None]:
        """Read the arguments of a call, piece by piece where they are an object."""
        source, said = self._source, self._said
        yield from source.run(SPACES, cuts)
        first = yield from source.peek(cuts)
        if first == "{":
            said.start_call(name, own_id, sure=True)
            yield from self._nested(cuts).value(said.arguments)
            said.end_call()
            return
        pieces: list[str] = []
        if first == '"':
            # JSON in a JSON string, behind which there may be the end of a fence.
            yield from self._nested(cuts).value(pieces.append)
        else:
            pieces.append((yield from source.rest(cuts, self._plan.final))[0].rstrip(SPACE))
        raw = "".join(pieces)
        said.call(WrittenCall(name, raw, arguments_of(raw)), own_id)

    def _bare_call(self) -> Waiting[None]:
        """Read a call that has no marker, if one stands here; else nothing more than what is text for certain."""
        source, said, cuts = self._source, self._said, self._plan.text
        said.text((yield from source.run(SPACES, cuts)))
        first = yield from source.peek(cuts)
        if len(first) != 1:
            return  # A marker; behind a thought, a call may still stand.
        self._bare = False
        if "line" in self._form.bare:
            yield from self._line_call(cuts)
        elif first in "{[":
            yield from self._bracketed(cuts)

    def _bracketed(self, cuts: Cuts) -> Waiting[None]:
        """Read JSON or a list of Python calls, if that is what the bracket opens."""
        source, said, forms = self._source, self._said, self._form.bare
        opened = ""
        if (yield from source.peek(cuts)) == "[":
            opened = source.take(source.at + 1) + (yield from source.run(SPACES, cuts))
        if (yield from source.peek(cuts)) == "{" and "json" in forms:
            calls = JsonCalls(self._nested(cuts), said, self._plan.tools, bare=True)
            count, raw = yield from calls.calls(opened)
            if not count or raw.strip(_LEFT_OVER):
                said.text(raw)
        elif opened and "python" in forms:
            yield from self._python_calls(opened, cuts)
        else:
            said.text(opened)

    def _python_calls(self, opened: str, cuts: Cuts) -> Waiting[None]:
        """Read a list of Python calls, if that is what a bracket opened."""
        source, said, tools = self._source, self._said, self._plan.tools
        nested = self._nested(cuts, python=True)
        raw = [opened]
        while True:
            name = yield from source.run(_NAME, cuts)
            raw.append(name)
            if not tools.may_be(name) or (yield from source.peek(cuts)) != "(":
                break
            closed = yield from nested.value(raw.append)
            raw.append((yield from source.run(SPACES, cuts)))
            sign = yield from source.peek(cuts)
            if not closed or sign not in (",", "]"):
                break
            raw.append(source.take(source.at + 1))
            if sign == "]":
                # Nothing but their form says that these are calls, so it must be whole; unless their names are known.
                calls = READERS["python"]("".join(raw), True, tools)  # noqa: FBT003 - the form of all readers
                if not calls or not (tools.known or all(call.arguments is not None for call in calls)):
                    break
                for call in calls:
                    said.call(call)
                return
            raw.append((yield from source.run(SPACES, cuts)))
        said.text("".join(raw))

    def _line_call(self, cuts: Cuts) -> Waiting[None]:
        """Read a name with JSON on the next line, if that is what stands here."""
        source, said, tools = self._source, self._said, self._plan.tools
        name = yield from source.run(_NAME, cuts)
        space = yield from source.run(SPACES, cuts)
        is_call = tools.may_be(name) and len(name) <= _LONGEST_NAME and space.startswith("\n")
        if is_call and (yield from source.peek(cuts)) == "{":
            yield from self._arguments(name, "", cuts)
        else:
            said.text(name + space)
