"""The chat templates and special tokens of a model, as its tokenizer's files give them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lazyprompt.chat_templates.jinja import ChatJinja

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = re.compile(r"[\w\s]*")
MAX_BYTES = 16_777_216
"""The most that a configuration, or all templates beside a tokenizer, may have."""


@dataclass(frozen=True, slots=True)
class ChatSource:
    """What a tokenizer's directory says about chats.

    Args:
        templates: The chat templates by name: ``default``, ``tool_use``, and others.
        special_tokens: The special tokens by the names that templates have for them.
        added_tokens: The tokens that the configuration adds to the tokenizer, each with its flags.
        whole_tokens: The texts of all special tokens: those that the tokenizer does not know are added to it.
    """

    templates: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    added_tokens: tuple[Mapping[str, object], ...] = field(default=(), hash=False)
    whole_tokens: tuple[str, ...] = ()

    @property
    def control_tokens(self) -> frozenset[str]:
        """The tokens of the tokenizer that a text must not forge: special ones, and those that are no plain words."""
        added = {str(token["content"]): bool(token.get("special")) for token in self.added_tokens}
        found = {text for text, special in added.items() if special or not _WORDS.fullmatch(text)}
        # A single sign cannot be broken, and is in many an honest text.
        return frozenset(text for text in found.union(self.whole_tokens) if len(text.strip()) > 1)

    def template(self, *, with_tools: bool = False) -> ChatJinja | None:
        """The template for a chat.

        Args:
            with_tools: Whether the model is given tools.

        Returns:
            ``tool_use`` for tools where there is one, else ``default``; None where there is no template for it.

        Raises:
            TemplateError: Its syntax is wrong.
        """
        names = ("tool_use", "default") if with_tools else ("default",)
        text = next((self.templates[name] for name in names if name in self.templates), None)
        return None if text is None else ChatJinja(text, self.special_tokens)
