"""The difference of two versions of a prompt for one case: whether requests differ, and in what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import LazyPromptError
from lazyprompt.files.filling import Filled
from lazyprompt.files.turns import Called, Turn
from lazyprompt.rendering.prompt_template import neutralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.testing.rendered import RenderedCase, TurnText

PROVIDERS: Final = ("openai", "anthropic", "gemini")
"""A case has changed if its request to one of these has."""


class Change(NamedTuple):
    """The change of a case from one version to another.

    Attributes:
        kinds: What changed: ``instruction``, ``slot NAME``, ``roles``, ``order``, ``tools``, ``model``,
            ``parameters``, ``answer form``, ``safety``; ``error`` if one version has no prompt.
        before: About how many tokens it had; 0 if there was no prompt.
        after: About how many tokens it has.
        size: The number of characters that differ, which orders changes.
        texts: The text before and after.
    """

    kinds: tuple[str, ...]
    before: int
    after: int
    size: int
    texts: tuple[str, str]


def compared(before: RenderedCase | str, after: RenderedCase | str) -> Change | None:
    """Compare the prompts of a case, or the reasons why there are none.

    Args:
        before: The prompt of the other version.
        after: The prompt.

    Returns:
        The change; None if no request differs.
    """
    if isinstance(before, str) or isinstance(after, str):
        return None if isinstance(before, str) and isinstance(after, str) else _appeared(before, after)
    return _change(before, after) if _differ(before, after) else None


def _appeared(before: RenderedCase | str, after: RenderedCase | str) -> Change:
    texts = [each if isinstance(each, str) else _text(each) for each in (before, after)]
    old, new = (0 if isinstance(each, str) else each.text_tokens for each in (before, after))
    return Change(("error",), old, new, len(texts[0]) + len(texts[1]), (texts[0], texts[1]))


def _differ(before: RenderedCase, after: RenderedCase) -> bool:
    """Return True if a request differs, by its bytes."""
    is_alike = before.source.settings_text == after.source.settings_text and before.value == after.value
    if is_alike and not _has_calls(after.value):
        return False
    if _texts_differ(before, after):
        return True
    first, *others = PROVIDERS
    if _bytes(before, first) != _bytes(after, first):
        return True
    # OpenAI's request shows the order of fields, which equality does not; all other requests are made of these two.
    return not is_alike and any(_bytes(before, each) != _bytes(after, each) for each in others)


def _has_calls(value: Prompt | Filled) -> bool:
    """Return True if there may be calls or tools of the text, of which equality does not see the order of fields."""
    if not isinstance(value, Filled):
        return value.history.has_messages
    turns = (step for step in value.steps if isinstance(step, Turn))
    return bool(value.tools) or any(isinstance(item, Called) for turn in turns for item in turn.items)


def _texts_differ(before: RenderedCase, after: RenderedCase) -> bool:
    """Return True if the same turns have other text, which OpenAI's chats have as it is; False if that is not known."""
    old, new = _only_texts(before), _only_texts(after)
    if old is None or new is None or [role for role, _ in old] != [role for role, _ in new]:
        return False
    return any(text != other and text.strip() and other.strip() for (_, text), (_, other) in zip(old, new, strict=True))


def _only_texts(case: RenderedCase) -> list[tuple[str, str]] | None:
    """Return the roles and texts of turns; None if one has anything else, or they are for no chat."""
    value, file, found = case.value, case.source.file, list[tuple[str, str]]()
    if not isinstance(value, Filled):
        system = case.source.system if value.system is None else value.system
        return [("system", f"{system}\n{''.join(value.instruction.parts)}"), ("user", value.said or "")]
    if file is None or file.spec.model.get("apiType") not in (None, "chat", "responses"):
        return None
    for step in value.steps:
        if not isinstance(step, Turn) or step.attributes or (text := step.only_text) is None:
            return None
        found.append((step.role, text.text))
    return found


def _bytes(case: RenderedCase, provider: str) -> str:
    try:
        return json.dumps(case.payload(provider))
    except LazyPromptError as error:
        return str(error)


def _change(before: RenderedCase, after: RenderedCase) -> Change:
    texts = _text(before), _text(after)
    return Change((*_kinds(before, after),), before.text_tokens, after.text_tokens, _distance(*texts), texts)


def _kinds(before: RenderedCase, after: RenderedCase) -> Iterator[str]:
    found = [*_setting_kinds(before, after), *_turn_kinds(before, after)]
    yield from dict.fromkeys(found or ["form"])


def _setting_kinds(before: RenderedCase, after: RenderedCase) -> Iterator[str]:
    old, new = before.source.settings, after.source.settings
    names = () if before.source.settings_text == after.source.settings_text else dict.fromkeys((*old, *new))
    for name in names:
        if json.dumps(old.get(name)) != json.dumps(new.get(name)):
            yield name
    if _named_tools(before) != _named_tools(after):
        yield "tools"


def _named_tools(case: RenderedCase) -> str:
    """Return the tools that only this case has."""
    return json.dumps(case.value.tools) if isinstance(case.value, Filled) and case.value.tools else ""


def _turn_kinds(before: RenderedCase, after: RenderedCase) -> Iterator[str]:
    old, new = before.turns, after.turns
    if sorted(map(_said, old)) == sorted(map(_said, new)):
        if [*map(_said, old)] != [*map(_said, new)]:
            yield "order"
        return
    if sorted(turn.role for turn in old) != sorted(turn.role for turn in new):
        yield "roles"
    slots, news = before.slots, after.slots
    if slots.pop("", "") != news.pop("", ""):
        yield "instruction"
    changed = [slot for slot in dict.fromkeys((*slots, *news)) if slots.get(slot) != news.get(slot)]
    yield from (f"slot {slot}" for slot in changed)
    if not changed and _places(old) != _places(new):
        yield "order"
    if any(_is_unsafe(slots.get(slot, "")) != _is_unsafe(news.get(slot, "")) for slot in changed):
        yield "safety"


def _said(turn: TurnText) -> tuple[str, str]:
    return turn.role, turn.text


def _places(turns: tuple[TurnText, ...]) -> list[str]:
    """Return the slots in the order in which they stand."""
    return [slot for turn in turns for slot, _ in turn.pieces if slot]


def _is_unsafe(text: str) -> bool:
    return neutralize(text) != text


def _text(case: RenderedCase) -> str:
    """Return the messages as text to be shown."""
    return "\n\n".join(f"{turn.role}:\n{turn.text}" for turn in case.turns)


def _distance(before: str, after: str) -> int:
    """Return the number of characters between the common beginning and the common end of two texts."""
    begin = _common(before, after)
    old, new = before[begin:], after[begin:]
    end = _common(old[::-1], new[::-1])
    return len(old) + len(new) - 2 * end


def _common(before: str, after: str) -> int:
    """Return the length of the common beginning of two texts."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[low:middle] == after[low:middle] else (low, middle - 1)
    return low
