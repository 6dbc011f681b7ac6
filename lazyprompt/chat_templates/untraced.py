"""Chats whose origins a template loses: all of it is untrusted but the template's own control sequences.

The chat is rendered once more with other characters in the place of all untrusted ones. A control sequence that stands
in both outputs at one place is the template's own. One that only the values bring about is forged.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import nodes

from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.traced import OWN, Origin, Traced, map_texts, parts_of
from lazyprompt.errors import SafetyError, TemplateError
from lazyprompt.safety.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja
    from lazyprompt.chat_templates.traced import Run
    from lazyprompt.safety.policy import Controls

_UNKNOWN = Origin("unknown")
_WORD = re.compile(r"[\w.-]+")
_PUNCTUATION = re.compile(r"([^\w\s])")
# Prose, of which no way to write a text makes a control sequence.
_PROSE = re.compile(r"[\w\s.,:!?'\"()-]*")
# Characters that HTML, JSON and addresses write in texts of one length.
_PAIRS = (*("<>", '"\\', "&'", "-.", "_~", "[(", "])", "{;", "}?", "|:", "/=", "#$", "!%", "*+", ",@", "^`"),)


class _Exchanged(dict[int, int]):
    """A translation to other characters: distinct texts stay distinct, white space stays what it is."""

    def __missing__(self, code: int) -> int:
        other = code ^ 1
        self[code] = code if code < 128 or chr(code).isspace() or chr(other).isspace() else other  # noqa: PLR2004 - ASCII
        return self[code]


def _exchanged() -> _Exchanged:
    table = _Exchanged()
    for signs in ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", *_PAIRS):
        half = len(signs) // 2
        table.update(zip(map(ord, signs), map(ord, signs[half:] + signs[:half]), strict=True))
    return table


_EXCHANGED = _exchanged()


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


def untraced_parts(
    template: ChatJinja,
    run: tuple[Sequence[Mapping[str, Any]], Mapping[str, object]],
    controls: Controls,
    safety: Policy,
) -> tuple[list[str], list[Origin]]:
    """Render a chat whose origins the template loses.

    Args:
        template: The template.
        run: The messages and the variables of the template, their texts traced.
        controls: Its control sequences.
        safety: The policy for control sequences in untrusted text.

    Returns:
        The text in parts and their origins: the template's own control sequences are trusted, all else is not.

    Raises:
        TemplateError: The template refuses the messages.
        SafetyError: The values bring about a control sequence, and that is refused or cannot be prevented.
    """
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
            spared = map_texts(run, lambda each: each if _is_spared(each, safety) else _unless(words, _exchange)(each))
            found = _compared(text, _rendered(template, spared), controls)
        if "raise" in policies and (found.forged or not found.settled):
            break
        if found.settled:
            slots = [origin.slot for origin in origins]
            return controls.guard(parts, slots, Policy()) if found.forged else parts, origins
    made = f"the control sequence {found.forged[0]!r}" if found.forged else "another structure"
    raise SafetyError(
        f"the template makes {made} of what the messages hold, and loses where its text came from; "
        "take out the text that it is made of"
    )


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
    if _PROSE.fullmatch(text) and not (controls.at_edge([text]) or controls.within([text], frozenset())):
        return text
    return "\\" + _PUNCTUATION.sub(r"\\\1", text)


def _is_spared(text: Traced, safety: Policy) -> bool:
    return all(origin.trusted or safety.of(origin.slot) == "off" for _, origin in text.runs)


def _rendered(template: ChatJinja, run: tuple[Sequence[Mapping[str, Any]], Mapping[str, object]]) -> str | None:
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
