"""Untrusted text in a chat: found, made harmless, and traced through the template.

Where a template loses the origins of its text, all of it is untrusted but the template's own control sequences. The
chat is then rendered once more with other characters in the place of all untrusted ones. A control sequence that stands
in both outputs at one place is the template's own. One that only the values bring about is forged.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import chain
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from jinja2 import nodes

from lazyprompt._base.roles import ROLES
from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.pieces import at_edge, within
from lazyprompt.chat_templates.traced import OWN, Origin, Run, Traced, cut, map_texts, parts_of, trace
from lazyprompt.errors import SafetyError, TemplateError
from lazyprompt.safety.neutralised import Neutralised
from lazyprompt.safety.policy import LEADING_THOUGHT, Policy, guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import Chat, ChatJinja
    from lazyprompt.safety.find import Controls

    # The messages and the variables of a template, their texts traced.
    _Run: TypeAlias = tuple[Chat, Mapping[str, object]]

# The fields of a message that hold untrusted text.
_SAID = ("content", "reasoning_content", "reasoning", "thinking")
# A thought without an end, which only a message to continue may have.
_OPEN_THOUGHT = re.compile(r"\s*+(<think>)(?!.*<think>)", re.DOTALL)
_UNKNOWN = Origin("unknown")
_WORD = re.compile(r"[\w.-]+")
_PUNCTUATION = re.compile(r"([^\w\s])")
# Prose, of which no way to write a text makes a control sequence.
_PROSE = re.compile(r"[\w\s.,:!?'\"()-]*")
# Characters that HTML, JSON and addresses write in texts of one length.
_PAIRS = ("<>", '"\\', "&'", "-.", "_~", "[(", "])", "{;", "}?", "|:", "/=", "#$", "!%", "*+", ",@", "^`")


_KINDS = (ascii_lowercase, ascii_uppercase, digits, *_PAIRS)
# Other characters: distinct texts stay distinct, white space stays what it is.
_EXCHANGED = str.maketrans("".join(_KINDS), "".join(kind[len(kind) // 2 :] + kind[: len(kind) // 2] for kind in _KINDS))


class Traces(NamedTuple):
    """A chat that was rendered with its origins.

    Attributes:
        parts: Trusted and untrusted text in turn.
        origins: The origin of each part.
        note: The reason why the template loses origins, if it does; only its own control sequences are trusted then.
    """

    parts: Sequence[str]
    origins: Sequence[Origin]
    note: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.parts)


class Rendering(NamedTuple):
    """The way in which chats are rendered.

    Attributes:
        template: The template.
        given: Its variables, beside the messages.
        controls: Its control sequences.
        safety: The policy for them in untrusted text.
    """

    template: ChatJinja
    given: Mapping[str, object]
    controls: Controls
    safety: Policy

    def but(self, **given: object) -> Rendering:
        """Return the rendering with other values of some variables."""
        return self._replace(given={**self.given, **given})

    def traced(self, chat: Chat) -> Traces:
        """Render a chat with its origins, and make harmless what nobody trusts.

        Untrusted text is made harmless before the template sees it, so that no forged tag makes it cut there. What a
        template puts together itself (arguments, tools, a sequence that begins in its own text) is looked at behind it.

        Args:
            chat: The messages, as plain data; what is traced already keeps its origins.

        Raises:
            TemplateError: The template refuses the messages.
            SafetyError: There is a control sequence, and that is refused.
        """
        run = self.with_origins(chat)
        text = self.template.run(map_texts(run[0], str.__str__), self.given)
        parts, origins, lost = self._traced_parts(run, text)
        if lost:
            parts, origins = self._untraced_parts(map_texts(run, self._guarded))
            return Traces(parts, origins, f"where its text came from is lost in the template: {lost}")
        if self.safety.looks:
            parts = guard(self.controls, parts, [origin.slot for origin in origins], self.safety)
        return Traces(parts, origins)

    def _traced_parts(self, run: _Run, text: str) -> tuple[list[str], list[Origin], str]:
        """Return the parts of a text and their origins, or the reason why the template loses them."""
        try:
            parts, origins = parts_of(self.template.run(*run, traced=True))
        except TemplateError as error:
            return [], [], str(error)
        if "".join(parts) != text:
            return [], [], "it writes another text with them"
        mixed = any(
            origin.mixed and not self.controls.is_clean(part) for part, origin in zip(parts, origins, strict=True)
        )
        return parts, origins, "it changes text of its own and of others as one" if mixed else ""

    def with_origins(self, chat: Chat) -> _Run:
        """Return messages and variables with origins, control sequences neutralised.

        Raises:
            SafetyError: There is a control sequence, and that is refused.
        """
        traced = [self._traced_message(message, at) for at, message in enumerate(chat)]
        given = self.given
        return traced, {**given, **{name: trace(given[name], Origin(name)) for name in ("tools", "documents")}}

    def _traced_message(self, message: Mapping[str, Any], at: int) -> dict[str, Any]:
        """Return a message whose texts know where they came from, untrusted text made harmless."""
        role = message.get("role")
        known = role in ROLES
        origin = Origin(str(role) if known else "role", at)
        traced = {name: value if name == "role" and known else trace(value, origin) for name, value in message.items()}
        for name in _SAID:
            if name in traced:
                traced[name] = self._said(traced[name], may_think=role == "assistant" and name == "content")
        return traced

    def _said(self, value: object, *, may_think: bool) -> object:
        """Neutralise the content of a message, part by part."""
        if isinstance(value, Traced):
            return self._guarded(_with_thought(value) if may_think else value)
        if isinstance(value, list):
            return [self._said(item, may_think=may_think) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            fields = cast("dict[object, object]", value)
            return {key: self._said(item, may_think=may_think) for key, item in fields.items()}
        return value

    def _guarded(self, text: Traced) -> Traced:
        """Make what is not trusted in a text harmless."""
        if not self.safety.looks or self.controls.is_clean(text):
            return text
        parts, origins = parts_of(text)
        where = [
            origin.slot if origin.message is None else f"messages[{origin.message}] ({origin.slot})"
            for origin in origins
        ]
        parts = guard(self.controls, parts, [origin.slot for origin in origins], self.safety, where)
        return Traced("".join(parts), chain.from_iterable(map(_runs, parts, origins)))

    def _untraced_parts(self, run: _Run) -> tuple[list[str], list[Origin]]:
        """Render a chat whose origins the template loses: its own control sequences are trusted, all else is not.

        Raises:
            TemplateError: The template refuses the messages.
            SafetyError: The values bring about a control sequence, and that is refused or cannot be prevented.
        """
        template, _, controls, safety = self
        words = _words(template)
        policies = {safety.default, *(each for _, each in safety.slots)}
        for change in (None, partial(_spaced_out, controls=controls)):
            run = run if change is None else map_texts(run, _unless(words, change))
            text = template.run(*map_texts(run, str.__str__))
            found = _compared(text, _rendered(template, map_texts(run, _unless(words, _exchange))), controls)
            parts, origins = _parted(text, found.own)
            if not safety.looks:
                return parts, origins
            if "off" in policies:
                spared = map_texts(
                    run, lambda each: each if _is_spared(each, safety) else _unless(words, _exchange)(each)
                )
                found = _compared(text, _rendered(template, spared), controls)
            if "raise" in policies and (found.forged or not found.settled):
                break
            if found.settled:
                slots = [origin.slot for origin in origins]
                return guard(controls, parts, slots, Policy()) if found.forged else parts, origins
        made = f"the control sequence {found.forged[0]!r}" if found.forged else "another structure"
        raise SafetyError(
            f"the template makes {made} of what the messages hold, and loses where its text came from; "
            "take out the text that it is made of"
        )


def _runs(part: str, origin: Origin) -> Iterator[Run]:
    """Yield the runs of a guarded part: what was neutralised keeps what it was."""
    done = 0
    for start, end, raw in part.marks if isinstance(part, Neutralised) else ():
        yield start - done, origin
        yield end - start, origin._replace(raw=raw)
        done = end
    yield len(part) - done, origin


def _with_thought(text: Traced) -> Traced:
    """Neutralise an assistant's content, but for the tags of its thought, which models write before an answer."""
    found = LEADING_THOUGHT.match(text)
    if not found and text.runs[-1][1].trusted:
        found = _OPEN_THOUGHT.match(text)
    runs: list[Run] = []
    at = 0
    for start, end in found.regs[1:] if found else ():
        if start >= 0:
            tag = [(length, origin._replace(trusted=True)) for length, origin in cut(text.runs, start, end)]
            runs += (*cut(text.runs, at, start), *tag)
            at = end
    return Traced(text, (*runs, *cut(text.runs, at, len(text))))


class _Compared(NamedTuple):
    """A text held against the same text with harmless values.

    Attributes:
        own: The places and texts of the control sequences that both have.
        forged: The control sequences that only the first has.
        settled: True if the first has a control sequence wherever the second has one.
    """

    own: Sequence[tuple[int, str]]
    forged: Sequence[str]
    settled: bool


@lru_cache(maxsize=128)
def _words(template: ChatJinja) -> frozenset[str]:
    """The names and words that a template may ask for: with others in their place it would do something else."""
    tree = parsed(template.text)
    texts = [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return frozenset(filter(_WORD.fullmatch, (*texts, *(node.attr for node in tree.find_all(nodes.Getattr)))))


def _unless(words: frozenset[str], change: Callable[[str], str]) -> Callable[[Traced], Traced]:
    """Return what changes the untrusted characters of texts other than the given words."""

    def changed(text: Traced) -> Traced:
        if text in words:
            return text
        parts, origins = parts_of(text)
        made = [part if origin.trusted else change(part) for part, origin in zip(parts, origins, strict=True)]
        return Traced("".join(made), [(len(part), origin) for part, origin in zip(made, origins, strict=True)])

    return changed


def _exchange(text: str) -> str:
    return str.translate(text, _EXCHANGED)


def _spaced_out(text: str, controls: Controls) -> str:
    """Put a backslash before each punctuation mark of a text, unless it is prose, and before the text itself."""
    if _PROSE.fullmatch(text) and not (at_edge(controls, [text]) or within(controls, [text], frozenset())):
        return text
    return "\\" + _PUNCTUATION.sub(r"\\\1", text)


def _is_spared(text: Traced, safety: Policy) -> bool:
    return all(origin.trusted or safety.of(origin.slot) == "off" for _, origin in text.runs)


def _rendered(template: ChatJinja, run: _Run) -> str | None:
    try:
        return template.run(*map_texts(run, str.__str__))
    except TemplateError:
        return None


def _compared(text: str, calm: str | None, controls: Controls) -> _Compared:
    """Compare the control sequences of a text with those of the same text with harmless values."""
    found, due = controls.found(text), controls.found(calm or "")
    if calm is None:
        return _Compared([], [sequence for _, sequence in found], settled=False)
    if len(text) == len(calm):
        own = {*found}.intersection(due)
        settled = {place for place, _ in due}.issubset(place for place, _ in found)
    else:
        settled = [sequence for _, sequence in found] == [sequence for _, sequence in due]
        own = {*found} if settled else set[tuple[int, str]]()
    return _Compared(sorted(own), [each[1] for each in found if each not in own], settled)


def _parted(text: str, own: Sequence[tuple[int, str]]) -> tuple[list[str], list[Origin]]:
    """Divide a text into the template's own control sequences and all else."""
    runs: list[Run] = []
    at = 0
    for place, sequence in own:
        runs += ((place - at, _UNKNOWN), (len(sequence), OWN))
        at = place + len(sequence)
    return parts_of(Traced(text, (*runs, (len(text) - at, _UNKNOWN))))
