"""Templates for prompts that consist of a list of messages with slots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, cast

from lazyprompt._base.json import is_sequence
from lazyprompt._base.roles import LANGCHAIN_WORDS, SYSTEM_ROLES
from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.messages.msg import Msg, TextBlock, message_of, text_message
from lazyprompt.messages.parse import parse_messages
from lazyprompt.messages.prompt import FilledText
from lazyprompt.templates.instruction import InstructionTemplate, Parts, Syntax, syntax_parser
from lazyprompt.templates.slots import SlotSyntax, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Fields
    from lazyprompt.messages.history import MessageObject
    from lazyprompt.messages.msg import Block

_HISTORY = "history"
_ROLES = ("system", "developer", "user", "assistant")
_EXAMPLE = '[("system", "You are kind."), "history", ("user", "{question}")]'
_PLACE = text_message("", "system")
_PAIR = 2

MessageLike: TypeAlias = "str | tuple[str, object] | Fields | Msg | MessageObject"
"""A message with slots: a ``(role, text)`` pair, a message dict, a ``Msg``, or the string ``"history"``."""


class TurnTemplate(NamedTuple):
    """A message with slots.

    Attributes:
        message: The message with unfilled slots.
        texts: The template of the message's text, or the template of each block; None for a block without text.
        constant: The finished message if its template contains no slots; otherwise None.
    """

    message: Msg
    texts: tuple[SlotSyntax | None, ...]
    constant: Msg | None = None

    @classmethod
    def of(cls, message: Msg, parse: type[SlotSyntax]) -> TurnTemplate:
        """Parse the slots in a message's texts. Tool calls, tool results and media stay unchanged."""
        if isinstance(message.content, str):
            made = cls(message, (parse(message.content, "instruction"),))
        else:
            texts = [
                parse(each.text, "instruction") if isinstance(each, TextBlock) else None for each in message.content
            ]
            made = cls(message, tuple(texts))
        has_slots = any(text.slots for text in made.templates)
        return made if has_slots else made._replace(constant=made.filled({}))

    @property
    def templates(self) -> list[SlotSyntax]:
        """The templates of all texts in the message."""
        return [text for text in self.texts if text is not None]

    @property
    def text(self) -> SlotSyntax | None:
        """The template of the message's text, or None if the message contains more than text."""
        message = self.message
        is_text = isinstance(message.content, str) and not (message.url or message.metadata)
        return self.texts[0] if is_text and message.name == message.role else None

    def filled(self, values: Mapping[str, Any]) -> Msg:
        """Fill the slots of the message. The native format is dropped, because slots in it are not filled."""
        if self.constant is not None:
            return self.constant
        message, content = self.message, self.message.content
        texts = [None if each is None else FilledText(each.filled(values)) for each in self.texts]
        filled = cast("str", texts[0]) if isinstance(content, str) else tuple(map(_with_text, content, texts))
        return message_of(message.speaker, filled, message.role, message.url, message.metadata, message.usage)


def _with_text(block: Block, text: FilledText | None) -> Block:
    return replace(block, text=text) if text is not None and isinstance(block, TextBlock) else block


class MessagesTemplate(InstructionTemplate):
    """A prompt template that consists of messages with slots, in order.

    A leading system message before the history becomes the prompt's system-level instruction, and a final user message
    becomes the prompt's user-level instruction. All messages that are not part of the instruction keep their place
    before or after the history.

    Args:
        messages: A list of pairs of role and text, message dicts, ``Msg`` objects, and the string ``"history"`` as a
            placeholder for the history. Without the placeholder ``"history"``, the history follows the last system
            message.
        syntax: ``slots`` for ``{name}`` or ``jinja2`` for sandboxed Jinja.

    Raises:
        TemplateError: A role or the syntax is unknown, ``"history"`` appears twice, or the list is empty.
        HistoryError: A message's format is not accepted.
    """

    always_user_turn: ClassVar[bool] = False

    def __init__(self, messages: Sequence[MessageLike], syntax: Syntax = "slots") -> None:
        parse = syntax_parser(syntax)
        before, after = _around_history(messages, parse)
        self.accepts_input = not (after and after[-1].message.role == "user")
        # A system message becomes the system-level part of the template only if it is the first message.
        system = before[0].text if before and before[0].message.role == "system" else None
        if system is not None:
            before.pop(0)
        user = None if self.accepts_input else after[-1].text
        if user is not None:
            after.pop()
        self._system = parse("", "instruction") if system is None else system
        self._user = parse("" if user is None else user.text, "user")
        # While a tool loop runs, a user message that comes last is dropped, even if it contains images or files.
        self._asks = bool(after) and after[-1].message.role == "user"
        self._before, self._after = tuple(before), tuple(after)
        self._read_slots(has_escapes=syntax == "slots")

    @property
    def templates(self) -> tuple[SlotSyntax, ...]:
        """The parsed templates: the system-level part, the other messages in order, and the user-level part."""
        own = (text for turn in (*self._before, *self._after) for text in turn.templates)
        return (self._system, *own, self._user)

    def _filled(self, values: Mapping[str, Any], *, user: bool = True) -> Parts:
        system, asked, text, _ = super()._filled(values, user=user)
        after = self._after if user or not self._asks else self._after[:-1]
        around = tuple(turn.filled(values) for turn in self._before), tuple(turn.filled(values) for turn in after)
        return system, asked, text, around

    @property
    def user_only(self) -> tuple[str, ...]:
        """The names of slots that occur only in the final user message."""
        asked: list[SlotSyntax] = [*self._after[-1].templates] if self._asks else [self._user]
        others = {slot for each in self.templates if each not in asked for slot in each.slots}
        return tuple(dict.fromkeys(slot for each in asked for slot in each.slots if slot not in others))


def _around_history(
    messages: Sequence[MessageLike], parse: type[SlotSyntax]
) -> tuple[list[TurnTemplate], list[TurnTemplate]]:
    """Parse messages, and return the messages before and the messages after the history."""
    if not is_sequence(messages):
        raise TemplateError(f"messages must be a list such as {_EXAMPLE}, not {type(messages).__name__}")
    parsed = parse_messages([_item(each, at) for at, each in enumerate(messages)], "messages")
    places = [at for at, message in enumerate(parsed) if message is _PLACE]
    if len(places) > 1:
        raise TemplateError(f"messages contains {_HISTORY!r} {len(places)} times; use it only once")
    systems = (at for at, message in enumerate(parsed, 1) if message.role in SYSTEM_ROLES)
    place = places[0] if places else max(systems, default=0)
    sides = parsed[:place], parsed[place + len(places) :]
    before, after = ([TurnTemplate.of(message, parse) for message in side] for side in sides)
    if not parsed:
        raise TemplateError(f"messages is empty; pass at least one message, as in {_EXAMPLE}")
    return before, after


def _item(given: object, at: int) -> object:
    """Convert a message for the history parser: a pair to a tuple, and ``"history"`` to the placeholder."""
    where = f"messages[{at}]"
    if isinstance(given, str):
        if given == _HISTORY:
            return _PLACE
        what = f"{where} is the string {given[:40]!r}{did_you_mean(given, [_HISTORY])}"
        raise TemplateError(f"{what}; expected a (role, text) pair or {_HISTORY!r}, as in {_EXAMPLE}")
    if not is_sequence(given):
        return given
    role = given[0] if given and isinstance(given[0], str) else ""
    if role == "placeholder":
        raise TemplateError(f"{where} is a LangChain message placeholder; use {_HISTORY!r} instead")
    if len(given) != _PAIR or role not in LANGCHAIN_WORDS:
        if not role:
            what = f"has type {type(given).__name__}"
        elif role in LANGCHAIN_WORDS:
            what = f"has the length {len(given)}"
        else:
            what = f"has the role {role!r}{did_you_mean(role, _ROLES)}"
        raise TemplateError(f"{where} {what}; expected a (role, text) pair whose role is one of {listed(_ROLES)}")
    return tuple(given)
