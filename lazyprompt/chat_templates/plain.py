"""Plain chats, laid out without running their template: what is found out about it once, to be used many times."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.chat_templates.controls import controls_of, turns_may_be_touched
from lazyprompt.chat_templates.frame import frame_of

if TYPE_CHECKING:
    from lazyprompt.chat_templates.frame import Frame, PlainChat
    from lazyprompt.chat_templates.jinja import ChatJinja
    from lazyprompt.safety.policy import Controls, Policy


class PlainForm(NamedTuple):
    """How a template writes plain chats.

    Attributes:
        frame: What stands around their texts.
        controls: The control sequences of the template and of its tokenizer.
        touched: Whether one could lie partly in a text, partly in what stands around it.
    """

    frame: Frame
    controls: Controls
    touched: bool

    def text(self, chat: PlainChat, safety: Policy) -> str | None:
        """A chat as the template writes it; None where something is to be looked at with more care.

        Args:
            chat: The chat.
            safety: What becomes of control sequences.
        """
        if safety.looks and not self.controls.clean(chat.joined):
            return None
        if (
            safety.looks
            and self.touched
            and (self.controls.at_edge(chat.texts) or self.controls.within(chat.texts, frozenset()))
        ):
            return None
        return self.frame.lay_out(chat)


@lru_cache(maxsize=128)
def plain_form_of(template: ChatJinja, tokens: frozenset[str]) -> PlainForm | None:
    """How a template writes plain chats; None where it is not that simple.

    Args:
        template: The template.
        tokens: What its tokenizer has besides: special tokens and the like.
    """
    frame = frame_of(template)
    if isinstance(frame, str):
        return None
    controls = controls_of(template, tokens)
    return PlainForm(frame, controls, turns_may_be_touched(template, controls))
