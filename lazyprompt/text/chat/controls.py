"""The control sequences of a chat template: what in it a model reads as structure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from jinja2 import nodes

from lazyprompt.text.chat.dialect import parsed
from lazyprompt.text.chat.jinja import CALLING, TOOL
from lazyprompt.text.chat.traced import Origin, Traced, parts_of, trace
from lazyprompt.text.markers import tokens_in
from lazyprompt.text.safety import COMMON_TAGS, JOINT, Controls, controls_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.text.chat.jinja import ChatJinja

# <…>, [NAME] or [/NAME]: tokens, and tags that models know as if they were tokens.
_TOKEN = re.compile(r"<+[^<>\s{}]+>+|\[/?(?=\w*[A-Z]{2})\w+\]|✿[^✿\s]+✿")
_PLAIN_TAG = re.compile(r"<[\w.=-]+>")
_NO_HEADERS: frozenset[str] = frozenset()
_WORD = "lazyprompt"


def sequences_in(template: ChatJinja) -> frozenset[str]:
    """The control sequences that a template writes.

    They are the tokens in its texts, and what it puts around the words of a short chat, be it a token or not.

    Args:
        template: The template.

    Returns:
        The sequences.
    """
    tree = parsed(template.text)
    texts = [str(node.data) for node in tree.find_all(nodes.TemplateData)]
    texts += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    found = {token for text in texts for token in _TOKEN.findall(text)}
    # In a description of tools, a word as <function-name> is for the reader: of plain tags only those count that are
    # closed somewhere.
    found = {token for token in found if not _PLAIN_TAG.fullmatch(token) or f"</{token[1:]}" in found}
    return frozenset(found).union(
        tokens_in(*_around_words(template)), (token for token in template.special_tokens.values() if token)
    )


def turn_sequences_in(template: ChatJinja) -> frozenset[str]:
    """The control sequences that open or close a turn.

    Args:
        template: The template.
    """
    thoughts = frozenset(("<think>", "</think>"))
    return (
        tokens_in(*_around_words(template)).union(token for token in template.special_tokens.values() if token)
        - thoughts
    )


def _around_words(template: ChatJinja) -> Iterable[str]:
    """What a template writes around the contents of a short chat."""
    roles = ("system", "user", "assistant", "user")
    words = [Traced.of(f"{_WORD}{at}", Origin(role, at)) for at, role in enumerate(roles)]
    in_parts = template.shows_parts and not template.shows_text
    contents = [[{"type": "text", "text": word}] if in_parts else word for word in words]
    chat = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    for messages in (chat, chat[1:], chat[1:2]):
        text = template.writes(messages, traced=True, add_generation_prompt=True)
        if text is not None:
            return parts_of(text)[0][::2]
    return ()


def _around_calls(template: ChatJinja) -> Iterable[str]:
    """What a template writes around calls, results and tools."""
    chat = [trace(template.takes.form(dict(message)), Origin("")) for message in CALLING]
    for message, role in zip(chat, ("user", "assistant", "tool"), strict=True):
        message["role"] = role
    for messages in (chat, chat[:2]):
        text = template.writes(messages, traced=True, tools=trace([TOOL], Origin("tools")))
        if text is not None:
            return parts_of(text)[0][::2]
    return ()


@lru_cache(maxsize=128)
def controls_of(template: ChatJinja, tokens: frozenset[str]) -> Controls:
    """The compiled control sequences of a template.

    Args:
        template: The template.
        tokens: What its tokenizer has besides: special tokens and the like.

    Returns:
        The set.
    """
    return controls_for(sequences_in(template) | tokens | COMMON_TAGS, _NO_HEADERS)


@lru_cache(maxsize=256)
def _crosses(template: ChatJinja, controls: Controls, *, calls: bool) -> bool:
    """Whether a sequence could lie partly in the template's own text, partly in a text beside it.

    Args:
        template: The template.
        controls: Its control sequences.
        calls: Whether there may be calls, results and tools.
    """
    around = [*_around_words(template), *(_around_calls(template) if calls else ())]
    return any(controls.may_cross(text) for text in around)


def is_clean(template: ChatJinja, controls: Controls, texts: Sequence[str], *, calls: bool) -> bool:
    """Whether texts hold no control sequence, nor a piece of one that the template's own text beside it could complete.

    Args:
        template: The template.
        controls: Its control sequences.
        texts: The texts.
        calls: Whether there may be calls, results and tools.
    """
    # Joined by what is part of no sequence.
    if not controls.clean(JOINT.join(texts)):
        return False
    return not (_crosses(template, controls, calls=calls) and controls.at_edge(texts))
