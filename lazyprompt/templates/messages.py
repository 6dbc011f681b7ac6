"""Messages with slots: a prompt written in reading order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, cast

from lazyprompt._base.json import is_sequence
from lazyprompt._base.roles import LANGCHAIN_WORDS, SYSTEM_ROLES
from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.messages.msg import Msg, TextBlock, message_of, text_message
from lazyprompt.messages.parse import parse_messages
from lazyprompt.messages.prompt import FilledText
from lazyprompt.templates.instruction import InstructionTemplate, Parts
from lazyprompt.templates.slots import SlotSyntax, SlotTemplate, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Fields
    from lazyprompt.messages.history import MessageObject
    from lazyprompt.messages.msg import Block

_HISTORY = "history"
_ROLES = ("system", "developer", "user", "assistant")
_EXAMPLE = '[("system", "You are kind."), "history", ("user", "{question}")]'
# The message that marks the place of the history.
_PLACE = text_message("", "system")
# The length of a pair of role and text.
_PAIR = 2

MessageLike: TypeAlias = "str | tuple[str, object] | Fields | Msg | MessageObject"
"""A message with slots: a role and a text, a message dict, a ``Msg``, or the word ``history``."""


class TurnTemplate(NamedTuple):
    """A message with slots.

    Attributes:
        message: The message.
        texts: The template of its text, or those of its blocks; None for a block without text.
        constant: The filled message, if there are no slots.
    """

    message: Msg
    texts: tuple[SlotTemplate | None, ...]
    constant: Msg | None = None

    @classmethod
    def of(cls, message: Msg) -> TurnTemplate:
        """Parse the texts of a message. Calls, results and media stay unchanged."""
        if isinstance(message.content, str):
            made = cls(message, (SlotTemplate(message.content),))
        else:
            made = cls(message, tuple(map(_template_of, message.content)))
        has_slots = any(text.slots for text in made.templates)
        return made if has_slots else made._replace(constant=made.filled({}))

    @property
    def templates(self) -> list[SlotTemplate]:
        """The templates of its texts."""
        return [text for text in self.texts if text is not None]

    @property
    def text(self) -> SlotTemplate | None:
        """The template of its text, if the message has no other content."""
        message = self.message
        is_text = isinstance(message.content, str) and not (message.url or message.metadata)
        return self.texts[0] if is_text and message.name == message.role else None

    def filled(self, values: Mapping[str, Any]) -> Msg:
        """Return the message with filled slots. The native form is dropped, because its slots are not filled."""
        if self.constant is not None:
            return self.constant
        message, content = self.message, self.message.content
        texts = [None if each is None else FilledText(each.filled(values)) for each in self.texts]
        filled = cast("str", texts[0]) if isinstance(content, str) else tuple(map(_with_text, content, texts))
        return message_of(message.speaker, filled, message.role, message.url, message.metadata, message.usage)


def _template_of(block: Block) -> SlotTemplate | None:
    return SlotTemplate(block.text) if isinstance(block, TextBlock) else None


def _with_text(block: Block, text: FilledText | None) -> Block:
    return replace(block, text=text) if text is not None and isinstance(block, TextBlock) else block


class MessagesTemplate(InstructionTemplate):
    """The messages of a prompt in order, with slots.

    A leading system message before the history is the system-level part. A final user message is the user-level part.
    All other messages are put around the history.

    Args:
        messages: Pairs of a role and a text, message dicts and ``Msg``, and the word ``history`` at the place of the
            history. Without that word, the history follows the last system message.

    Raises:
        TemplateError: A role is unknown, the word ``history`` appears twice, or there are no messages.
        HistoryError: A message has no accepted form.
    """

    always_user_turn: ClassVar[bool] = False

    def __init__(self, messages: Sequence[MessageLike]) -> None:
        before, after = _around_history(messages)
        self.accepts_input = not (after and after[-1].message.role == "user")
        # System text after the history stays there.
        system = before[0].text if before and before[0].message.role == "system" else None
        if system is not None:
            before.pop(0)
        user = None if self.accepts_input else after[-1].text
        if user is not None:
            after.pop()
        self._system = SlotTemplate("") if system is None else system
        self._user = SlotTemplate("" if user is None else user.text, "user")
        # A final user message with more than text is dropped in a tool loop, like the user's part.
        self._asks = bool(after) and after[-1].message.role == "user"
        self._before, self._after = tuple(before), tuple(after)
        self._read_slots(has_escapes=True)

    @property
    def templates(self) -> tuple[SlotSyntax, ...]:
        """The parsed parts: the system-level one, the texts of messages in order, and the user-level one."""
        own = (text for turn in (*self._before, *self._after) for text in turn.templates)
        return (self._system, *own, self._user)

    def _filled(self, values: Mapping[str, Any], *, user: bool = True) -> Parts:
        system, asked, text, _ = super()._filled(values, user=user)
        after = self._after if user or not self._asks else self._after[:-1]
        around = tuple(turn.filled(values) for turn in self._before), tuple(turn.filled(values) for turn in after)
        return system, asked, text, around

    @property
    def user_only(self) -> tuple[str, ...]:
        """The slots that only the final user message contains."""
        asked: list[SlotSyntax] = [*self._after[-1].templates] if self._asks else [self._user]
        others = {slot for each in self.templates if each not in asked for slot in each.slots}
        return tuple(dict.fromkeys(slot for each in asked for slot in each.slots if slot not in others))


def _around_history(messages: Sequence[MessageLike]) -> tuple[list[TurnTemplate], list[TurnTemplate]]:
    """Parse messages, and return those before and after the history."""
    if not is_sequence(messages):
        raise TemplateError(f"messages is a {type(messages).__name__}; give a list, such as {_EXAMPLE}")
    parsed = parse_messages([_item(each, at) for at, each in enumerate(messages)], "messages")
    places = [at for at, message in enumerate(parsed) if message is _PLACE]
    if len(places) > 1:
        raise TemplateError(f"messages contains {_HISTORY!r} {len(places)} times; write it once")
    systems = (at for at, message in enumerate(parsed, 1) if message.role in SYSTEM_ROLES)
    place = places[0] if places else max(systems, default=0)
    before, after = ([*map(TurnTemplate.of, side)] for side in (parsed[:place], parsed[place + len(places) :]))
    if not before and not after:
        raise TemplateError(f"there are no messages; give some, such as {_EXAMPLE}")
    return before, after


def _item(given: object, at: int) -> object:
    """Convert a message for the parser: a pair to a tuple, and the word ``history`` to its mark."""
    where = f"messages[{at}]"
    if isinstance(given, str):
        if given == _HISTORY:
            return _PLACE
        what = f"{where} is the text {given[:40]!r}{did_you_mean(given, [_HISTORY])}"
        raise TemplateError(f"{what}; give a role and a text, or {_HISTORY!r}, as in {_EXAMPLE}")
    if not is_sequence(given):
        return given
    role = given[0] if given and isinstance(given[0], str) else ""
    if role == "placeholder":
        raise TemplateError(f"{where} is LangChain's placeholder for messages; write {_HISTORY!r} instead")
    if len(given) != _PAIR or role not in LANGCHAIN_WORDS:
        what = f"has the role {role!r}{did_you_mean(role, _ROLES)}" if role else f"is a {type(given).__name__}"
        raise TemplateError(f"{where} {what}; expected a role and a text, the role one of {listed(_ROLES)}")
    return tuple(given)
