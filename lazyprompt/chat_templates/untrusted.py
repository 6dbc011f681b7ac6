"""Rendering of chats in which untrusted text is neutralised and traced through the template.

If the origins of the output can't be traced, only the template's own control sequences are trusted. To find the
template's control sequences, the chat is rendered again with each untrusted character replaced by another character. A
control sequence at the same index in both renderings was written by the template. A control sequence that appears only
in the rendering with the original characters is forged.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import chain
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jinja2 import nodes

from lazyprompt._base.json import is_dict, is_list
from lazyprompt._base.roles import ROLES
from lazyprompt.chat_templates.dialect import parse_template
from lazyprompt.chat_templates.pieces import at_edge, within
from lazyprompt.chat_templates.traced import OWN, Run, TextOrigin, Traced, cut_runs, map_texts, parts_of, trace
from lazyprompt.errors import SafetyError, TemplateError
from lazyprompt.safety.neutralised import Neutralised
from lazyprompt.safety.policy import LEADING_THOUGHT, Policy, guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import Chat, ChatJinja
    from lazyprompt.safety.find import Controls

    _Run: TypeAlias = tuple[Chat, Mapping[str, object]]

_SAID = ("content", "reasoning_content", "reasoning", "thinking")
# Matches an unclosed reasoning tag, which is allowed only in a message that the model continues.
_OPEN_THOUGHT = re.compile(r"\s*+(<think>)(?!.*<think>)", re.DOTALL)
_UNKNOWN = TextOrigin("unknown")
_WORD = re.compile(r"[\w.-]+")
_PUNCTUATION = re.compile(r"([^\w\s])")
# Matches plain prose, which no filter can turn into a control sequence.
_PROSE = re.compile(r"[\w\s.,:!?'\"()-]*")
# Pairs of characters whose HTML, JSON and URL escapes have equal lengths.
_PAIRS = ("<>", '"\\', "&'", "-.", "_~", "[(", "])", "{;", "}?", "|:", "/=", "#$", "!%", "*+", ",@", "^`")


_KINDS = (ascii_lowercase, ascii_uppercase, digits, *_PAIRS)
# Replaces each character with a distinct character of the same kind, so that distinct texts remain distinct.
_EXCHANGED = str.maketrans("".join(_KINDS), "".join(kind[len(kind) // 2 :] + kind[: len(kind) // 2] for kind in _KINDS))


class Traces(NamedTuple):
    """A rendered chat in parts, with the origin of each part.

    Attributes:
        parts: Alternating trusted and untrusted parts.
        origins: The origin of each part.
        note: The reason why the origins of the rendered text can't be traced; empty if they are traced. Without traced
            origins, only the template's own control sequences are trusted.
    """

    parts: Sequence[str]
    origins: Sequence[TextOrigin]
    note: str = ""

    @property
    def text(self) -> str:
        """The whole rendered text."""
        return "".join(self.parts)


class Rendering(NamedTuple):
    """The settings for rendering chats.

    Attributes:
        template: The template.
        given: The template variables except the messages.
        controls: The template's control sequences.
        safety: The policy for control sequences in untrusted text.
    """

    template: ChatJinja
    given: Mapping[str, object]
    controls: Controls
    safety: Policy

    def but(self, **given: object) -> Rendering:
        """Return the same settings with some variables changed."""
        return self._replace(given={**self.given, **given})

    def traced(self, chat: Chat) -> Traces:
        """Render a chat, trace each part of the output to its origin, and neutralise untrusted control sequences.

        Message contents are neutralised before rendering, so that forged tags in them don't mislead the template. Text
        that the template composes, such as arguments and tools, is checked after rendering.

        Args:
            chat: The messages as plain data. Traced texts keep their origins.

        Raises:
            TemplateError: The template rejects the messages.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        run = self.with_origins(chat)
        text = self.template.run(map_texts(run[0], str.__str__), self.given)
        parts, origins, lost = self._trace_parts(run, text)
        if lost:
            parts, origins = self._compare_parts(map_texts(run, self._guard))
            return Traces(parts, origins, f"the origins of the rendered text can't be traced: {lost}")
        if self.safety.looks:
            parts = guard(self.controls, parts, [origin.slot for origin in origins], self.safety)
        return Traces(parts, origins)

    def _trace_parts(self, run: _Run, text: str) -> tuple[list[str], list[TextOrigin], str]:
        """Return a text's parts, their origins, and the reason why origins are lost (empty if none are lost)."""
        try:
            parts, origins = parts_of(self.template.run(*run, traced=True))
        except TemplateError as error:
            return [], [], str(error)
        if "".join(parts) != text:
            return [], [], "the template renders different text while origins are traced"
        mixed = any(
            origin.mixed and not self.controls.is_clean(part) for part, origin in zip(parts, origins, strict=True)
        )
        return parts, origins, "the template modifies its own text and other text together" if mixed else ""

    def with_origins(self, chat: Chat) -> _Run:
        """Add origins to messages and variables, and neutralise control sequences in message contents.

        Raises:
            SafetyError: Message content contains a control sequence, and the policy is ``raise``.
        """
        traced = [self._trace_message(message, at) for at, message in enumerate(chat)]
        given = self.given
        return traced, {**given, **{name: trace(given[name], TextOrigin(name)) for name in ("tools", "documents")}}

    def _trace_message(self, message: Mapping[str, Any], at: int) -> dict[str, Any]:
        """Add origins to a message, and neutralise control sequences in its contents."""
        role = message.get("role")
        known = role in ROLES
        origin = TextOrigin(str(role) if known else "role", at)
        traced = {name: value if name == "role" and known else trace(value, origin) for name, value in message.items()}
        for name in _SAID:
            if name in traced:
                traced[name] = self._guard_content(traced[name], may_think=role == "assistant" and name == "content")
        return traced

    def _guard_content(self, value: object, *, may_think: bool) -> object:
        """Neutralise control sequences in message content, part by part."""
        if isinstance(value, Traced):
            return self._guard(_with_thought(value) if may_think else value)
        if is_list(value):
            return [self._guard_content(item, may_think=may_think) for item in value]
        if is_dict(value):
            return {key: self._guard_content(item, may_think=may_think) for key, item in value.items()}
        return value

    def _guard(self, text: Traced) -> Traced:
        """Neutralise control sequences in the untrusted parts of a text."""
        if not self.safety.looks or self.controls.is_clean(text):
            return text
        parts, origins = parts_of(text)
        where = [
            origin.slot if origin.message is None else f"messages[{origin.message}] ({origin.slot})"
            for origin in origins
        ]
        parts = guard(self.controls, parts, [origin.slot for origin in origins], self.safety, where)
        return Traced("".join(parts), chain.from_iterable(map(_runs, parts, origins)))

    def _compare_parts(self, run: _Run) -> tuple[list[str], list[TextOrigin]]:
        """Render a chat whose origins can't be traced, and trust only the template's own control sequences.

        Raises:
            TemplateError: The template rejects the messages.
            SafetyError: The values produce a control sequence that the policy forbids, or that can't be neutralised.
        """
        template, _, controls, safety = self
        words = _words(template)
        policies = {safety.default, *(each for _, each in safety.slots)}
        for change in (None, partial(_escape, controls=controls)):
            run = run if change is None else map_texts(run, _change_unless(words, change))
            text = template.run(*map_texts(run, str.__str__))
            found = _compare(text, _try_render(template, map_texts(run, _change_unless(words, _exchange))), controls)
            parts, origins = _split(text, found.own)
            if not safety.looks:
                return parts, origins
            if "off" in policies:
                spared = map_texts(
                    run, lambda each: each if _is_spared(each, safety) else _change_unless(words, _exchange)(each)
                )
                found = _compare(text, _try_render(template, spared), controls)
            if "raise" in policies and (found.forged or not found.settled):
                break
            if found.settled:
                slots = [origin.slot for origin in origins]
                return guard(controls, parts, slots, Policy()) if found.forged else parts, origins
        made = f"the control sequence {found.forged[0]!r}" if found.forged else "a different structure"
        raise SafetyError(
            f"the template builds {made} from message content, and the origins of the rendered text can't be traced; "
            "remove this content from the messages"
        )


def _runs(part: str, origin: TextOrigin) -> Iterator[Run]:
    """Yield the (length, origin) runs of a text; the origin of a neutralised sequence records its original text."""
    done = 0
    for start, end, raw in part.marks if isinstance(part, Neutralised) else ():
        yield start - done, origin
        yield end - start, origin._replace(raw=raw)
        done = end
    yield len(part) - done, origin


def _with_thought(text: Traced) -> Traced:
    """Trust the reasoning tags at the start of an assistant message, because models write them themselves."""
    found = LEADING_THOUGHT.match(text)
    if not found and text.runs[-1][1].trusted:
        found = _OPEN_THOUGHT.match(text)
    runs: list[Run] = []
    at = 0
    for start, end in found.regs[1:] if found else ():
        if start >= 0:
            tag = [(length, origin._replace(trusted=True)) for length, origin in cut_runs(text.runs, start, end)]
            runs += (*cut_runs(text.runs, at, start), *tag)
            at = end
    return Traced(text, (*runs, *cut_runs(text.runs, at, len(text))))


class _Compared(NamedTuple):
    """The control sequences in two renderings of a chat: the original, and one whose untrusted characters are replaced.

    Attributes:
        own: The index and text of each control sequence that appears in both renderings of the chat.
        forged: The control sequences that appear only in the rendering with the original untrusted characters.
        settled: True if the original rendering contains a control sequence wherever the other rendering contains one.
    """

    own: Sequence[tuple[int, str]]
    forged: Sequence[str]
    settled: bool


@lru_cache(maxsize=128)
def _words(template: ChatJinja) -> frozenset[str]:
    """Return the words in a template that must not be replaced, because the template may compare values with them."""
    tree = parse_template(template.text)
    texts = [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return frozenset(filter(_WORD.fullmatch, (*texts, *(node.attr for node in tree.find_all(nodes.Getattr)))))


def _change_unless(words: frozenset[str], change: Callable[[str], str]) -> Callable[[Traced], Traced]:
    """Return a function that applies ``change`` to a text's untrusted parts, unless the whole text is in ``words``."""

    def changed(text: Traced) -> Traced:
        if text in words:
            return text
        parts, origins = parts_of(text)
        made = [part if origin.trusted else change(part) for part, origin in zip(parts, origins, strict=True)]
        return Traced("".join(made), [(len(part), origin) for part, origin in zip(made, origins, strict=True)])

    return changed


def _exchange(text: str) -> str:
    return str.translate(text, _EXCHANGED)


def _escape(text: str, controls: Controls) -> str:
    """Put a backslash before a text and each of its punctuation marks, unless the text is plain prose."""
    if _PROSE.fullmatch(text) and not (at_edge(controls, [text]) or within(controls, [text], frozenset())):
        return text
    return "\\" + _PUNCTUATION.sub(r"\\\1", text)


def _is_spared(text: Traced, safety: Policy) -> bool:
    return all(origin.trusted or safety.of(origin.slot) == "off" for _, origin in text.runs)


def _try_render(template: ChatJinja, run: _Run) -> str | None:
    try:
        return template.run(*map_texts(run, str.__str__))
    except TemplateError:
        return None


def _compare(text: str, masked: str | None, controls: Controls) -> _Compared:
    """Compare the control sequences in ``text`` with those in ``masked``, the rendering with replaced characters."""
    found, due = controls.found(text), controls.found(masked or "")
    if masked is None:
        return _Compared([], [sequence for _, sequence in found], settled=False)
    if len(text) == len(masked):
        own = {*found}.intersection(due)
        settled = {place for place, _ in due}.issubset(place for place, _ in found)
    else:
        settled = [sequence for _, sequence in found] == [sequence for _, sequence in due]
        own = {*found} if settled else set[tuple[int, str]]()
    return _Compared(sorted(own), [each[1] for each in found if each not in own], settled)


def _split(text: str, own: Sequence[tuple[int, str]]) -> tuple[list[str], list[TextOrigin]]:
    """Split a text into the template's own control sequences and the remaining text."""
    runs: list[Run] = []
    at = 0
    for place, sequence in own:
        runs += ((place - at, _UNKNOWN), (len(sequence), OWN))
        at = place + len(sequence)
    return parts_of(Traced(text, (*runs, (len(text) - at, _UNKNOWN))))
