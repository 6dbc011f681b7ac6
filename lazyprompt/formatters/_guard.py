"""A guard that neutralises or rejects control sequences in a payload's messages and tools.

A server that tokenizes text with the model's chat template interprets control sequences as structure. The guard
searches all texts of a payload in one pass, because most payloads contain no control sequence. The search runs before
the provider's rules, so that it skips the trusted text that these rules may add.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.json import Json, texts_in
from lazyprompt.messages.msg import TextBlock, text_message
from lazyprompt.messages.prompt import MARKERS
from lazyprompt.messages.texts import json_with_texts, with_texts
from lazyprompt.rendering.prompt_template import controls_for_model
from lazyprompt.safety.policy import LEADING_THOUGHT, NEUTRALIZE, OFF, guard, policy_of
from lazyprompt.safety.restoring import pairs_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.chat_templates.template import ModelLike
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.report import Notes
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Text
    from lazyprompt.messages.texts import ChangeText
    from lazyprompt.safety.find import Controls
    from lazyprompt.safety.policy import Policy, Safety

_WHY = "control sequences in untrusted text are neutralised; with_safety() or safety= may refuse or keep them"


class MessageGuard(NamedTuple):
    """A guard that neutralises or rejects control sequences in a payload's content.

    Attributes:
        controls: The model's control sequences, or the sequences of all model families if the model is unknown.
        policy: The policy for control sequences in untrusted text.
        own: The texts of the prompter's messages, by message index. Messages that are not in ``own`` are untrusted.
    """

    controls: Controls
    policy: Policy
    own: Mapping[int, Text] | None = None

    def messages(
        self, messages: Sequence[Msg], kept: Sequence[int], notes: Notes, found: dict[str, str]
    ) -> Sequence[Msg]:
        """Return the messages with the control sequences in untrusted text neutralised.

        Args:
            messages: All messages in the conversation.
            kept: The indices, in ``messages``, of the messages that are sent.
            notes: The report, which gets an entry for each changed message.
            found: A dict that maps neutralised sequences to their originals; new sequences are added to it.

        Raises:
            SafetyError: An untrusted text contains a control sequence, and the policy is ``raise``.
        """
        parts, own = _Parts(), self.own or {}
        for at in kept:
            if at in own:
                parts.add_own(own[at])
            else:
                with_texts(messages[at], parts.collector(f"messages[{at}]", "history", _answer_in(messages[at])))
        texts = parts.guarded(self, found)
        changed = [*messages]
        for at in kept:
            changed[at] = self._guarded(messages[at], at, texts)
            if changed[at] is not messages[at]:
                notes.add(f"messages[{at}]", "safety", "changed", _WHY)
        return changed

    def message(self, message: Msg, name: str) -> Msg:
        """Return a message with its control sequences neutralised; ``name`` identifies the message in errors."""
        parts = _Parts()
        with_texts(message, parts.collector(name, "history", _answer_in(message)))
        texts = parts.guarded(self, {})
        return message if texts is None else with_texts(message, _replacer(texts))

    def tools(self, tools: list[JsonObject], notes: Notes, found: dict[str, str]) -> list[JsonObject]:
        """Neutralise the control sequences in tool definitions, which are already in a provider's format."""
        parts = _Parts()
        _change_tools(tools, parts.collector("tools", "tools"))
        texts = parts.guarded(self, found)
        if texts is None:
            return tools
        notes.add("tools", "safety", "changed", _WHY)
        return _change_tools(tools, _replacer(texts))

    def _guarded(self, message: Msg, at: int, texts: Iterator[str] | None) -> Msg:
        """Return a message with neutralised texts; native content that contains a control sequence is dropped."""
        if texts is not None and self.own and at in self.own:
            text = next(texts)
            return message if text == message.text else text_message(text, message.role)
        guarded = message if texts is None else with_texts(message, _replacer(texts))
        if message.native is None:
            return guarded
        # A module may have restored control sequences in the text of a reply, but never in its native content.
        keeps = guarded is message or _is_simple_answer(message)
        return guarded if keeps and self._leaves(message.native.data) else guarded.evolve()

    def _leaves(self, data: Json) -> bool:
        """Return True if a message's native content may be sent unchanged."""
        if self.policy.of("history") == "off":
            return True
        texts = texts_in(data)
        # Tool arguments are JSON strings, so also search their decoded text for control sequences.
        return all(map(self.controls.is_clean, [*texts, *(inner for text in texts for inner in _texts_in_json(text))]))


def guard_for(profile: Profile | None, model: ModelLike | None, safety: Safety | None) -> MessageGuard | None:
    """Return the guard for a formatter, or None if payloads need no search for control sequences.

    Args:
        profile: The provider's rules; None for an unknown server, which may tokenize text with a chat template.
        model: The model.
        safety: The ``safety`` setting for control sequences; None for the provider's default.

    Raises:
        SafetyError: The value of ``safety`` is unknown.
    """
    policy = policy_of(safety) if safety is not None else NEUTRALIZE if profile is None or profile.tokenizes else OFF
    return MessageGuard(controls_for_model(model), policy) if policy.looks else None


class _Parts:
    """A payload's texts as alternating trusted and untrusted parts, with a newline before each text."""

    def __init__(self) -> None:
        self._parts, self._slots, self._names = [""], [MARKERS], [MARKERS]
        # The start and end of each added text, as indices into ``_parts``.
        self._spans: list[tuple[int, int]] = []

    def add_own(self, text: Text) -> None:
        """Add the text of a message that the prompter rendered; text from the template is trusted."""
        slots = (MARKERS, *text.slots, MARKERS)
        self._add(("", *text.parts, ""), slots, slots)

    def collector(self, name: str, slot: str, answer: str = "") -> ChangeText:
        """Return a function that records each text passed to it and returns the text unchanged.

        Args:
            name: The name by which error messages refer to the recorded texts.
            slot: The slot whose safety policy applies to the recorded texts.
            answer: The text of the assistant's reply; the thinking tags at its start are trusted.
        """

        def collect(text: str, *, behind_text: bool = False) -> str:
            pieces = _split_thought(text) if answer and text is answer else (text,)
            self._add(pieces, (slot,) * len(pieces), (name,) * len(pieces), glued=behind_text)
            return text

        return collect

    def guarded(self, guard_of: MessageGuard, found: dict[str, str]) -> Iterator[str] | None:
        """Return all texts in order, with their control sequences neutralised, or None if no text has changed."""
        parts = guard(guard_of.controls, self._parts, self._slots, guard_of.policy, self._names)
        if parts == self._parts:
            return None
        found |= pairs_in(parts)
        return ("".join(parts[begin:end]) for begin, end in self._spans)

    def _add(self, pieces: Sequence[str], slots: Sequence[str], names: Sequence[str], *, glued: bool = False) -> None:
        """Add one of a payload's texts as alternating untrusted and trusted pieces; both outer pieces are untrusted."""
        if not glued:
            self._parts[-1] += "\n"
        self._spans.append((len(self._parts), len(self._parts) + len(pieces)))
        self._parts += (*pieces, "")
        self._slots += (*slots, MARKERS)
        self._names += (*names, MARKERS)


def _change_tools(tools: list[JsonObject], change: ChangeText) -> list[JsonObject]:
    changed = [json_with_texts(tool, change) for tool in tools]
    return [tool for tool in changed if isinstance(tool, dict)]


def _is_simple_answer(message: Msg) -> bool:
    """Return True for a reply with at most one text block; joined text blocks could form a control sequence."""
    kinds = [block.kind for block in message.blocks]
    return message.role == "assistant" and kinds.count("text") <= 1 and "tool_result" not in kinds


def _texts_in_json(text: str) -> list[str]:
    """Parse a JSON text with escapes and return its strings; return an empty list for any other text."""
    try:
        return texts_in(json.loads(text)) if "\\" in text else []
    except (ValueError, RecursionError):
        return []


def _answer_in(message: Msg) -> str:
    """Return an assistant message's first text, which may begin with reasoning in tags, or ``""`` if there is none."""
    texts = (block.text for block in message.blocks if isinstance(block, TextBlock))
    return next(texts, "") if message.role == "assistant" else ""


def _split_thought(answer: str) -> tuple[str, ...]:
    """Split off the thinking tags at the start of a reply, and return alternating texts and tags.

    Models write their reasoning before the reply, and chat templates use these tags to remove old reasoning.
    """
    thought = LEADING_THOUGHT.match(answer)
    pieces: list[str] = []
    done = 0
    for begin, end in thought.regs[1:] if thought else ():
        if begin >= 0:
            pieces += (answer[done:begin], answer[begin:end])
            done = end
    return (*pieces, answer[done:])


def _replacer(texts: Iterator[str]) -> ChangeText:
    """Return a function that replaces each text with the iterator's next text."""

    def put(text: str, *, behind_text: bool = False) -> str:
        new = next(texts)
        return text if new == text else new

    return put
