"""The difference of two versions of a prompt for one case: whether requests differ, and in what."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import LazyPromptError
from lazyprompt.files.filling import Filled
from lazyprompt.files.turns import Called, Turn
from lazyprompt.rendering.prompt_template import neutralize
from lazyprompt.testing.rendered import tokens_of_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.testing.rendered import Frame, RenderedCase

PROVIDERS: Final = ("openai", "anthropic", "gemini")
"""A case has changed if its request to one of these has."""


class Change(NamedTuple):
    """The change of a case from one version to another.

    Attributes:
        kinds: What changed: ``instruction``, ``slot NAME``, ``roles``, ``order``, ``tools``, ``model``,
            ``parameters``, ``answer form``, ``safety``; ``error`` if one version has no prompt.
        tokens: About how many tokens its texts have more.
        size: The number of characters that differ, which orders changes.
        before: The prompt of the other version, or the reason why there is none.
        after: The prompt, or the reason why there is none.
    """

    kinds: tuple[str, ...]
    tokens: int
    size: int
    before: RenderedCase | str
    after: RenderedCase | str

    @property
    def texts(self) -> tuple[str, str]:
        """The text before and after."""
        return _text(self.before), _text(self.after)


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
    old, new = (0 if isinstance(each, str) else tokens_of_text(each.text) for each in (before, after))
    return Change(("error",), new - old, len(_text(before)) + len(_text(after)), before, after)


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
    if old is None or new is None or old[0] != new[0]:
        return False
    return any(text != other and text.strip() and other.strip() for text, other in zip(old[1], new[1], strict=True))


def _only_texts(case: RenderedCase) -> tuple[list[str], list[str]] | None:
    """Return the roles and texts of turns; None if one has anything else, or they are for no chat."""
    value, file = case.value, case.source.file
    if not isinstance(value, Filled):
        system = case.source.system if value.system is None else value.system
        return ["system", "user"], [f"{system}\n{''.join(value.instruction.parts)}", value.said or ""]
    if file is None or file.spec.model.get("apiType") not in (None, "chat", "responses"):
        return None
    roles, texts = list[str](), list[str]()
    for step in value.steps:
        if not isinstance(step, Turn) or step.attributes or (text := step.only_text) is None:
            return None
        roles.append(step.role)
        texts.append(text.text)
    return roles, texts


def _bytes(case: RenderedCase, provider: str) -> str:
    try:
        return json.dumps(case.payload(provider))
    except LazyPromptError as error:
        return str(error)


def _change(before: RenderedCase, after: RenderedCase) -> Change:
    (old, values), (new, news) = before.outline, after.outline
    kinds, tokens, size = _frame_change(old, new)
    if before.source is not after.source:
        kinds = (*_setting_kinds(before, after), *kinds)
    if values != news or old != new:
        for slot, text, other in _changed_slots(old, values, new, news):
            kinds = (*kinds, f"slot {slot}")
            tokens += tokens_of_text(other) - tokens_of_text(text)
            size += _distance(text, other)
            if "safety" not in kinds and (neutralize(text) != text) != (neutralize(other) != other):
                kinds = (*kinds, "safety")
    return Change(kinds or ("form",), tokens, size, before, after)


@lru_cache(maxsize=64)
def _frame_change(before: Frame, after: Frame) -> tuple[tuple[str, ...], int, int]:
    """Return the kinds, tokens and size of the change of all but values; it is the same for most rows."""
    if before == after:
        return (), 0, 0
    old, new = (["".join(own) for _, own, _ in frame] for frame in (before, after))
    size = _distance("".join(old), "".join(new))
    if sorted(before) == sorted(after):
        return ("order",), 0, size
    kinds: list[str] = []
    if sorted(role for role, _, _ in before) != sorted(role for role, _, _ in after):
        kinds.append("roles")
    if "".join(old) != "".join(new):
        kinds.append("instruction")
    names, others = ([name for _, _, names in frame for name in names] for frame in (before, after))
    if (names != others and sorted(names) == sorted(others)) or (names == others and not kinds):
        kinds.append("order")
    return tuple(kinds), sum(map(tokens_of_text, new)) - sum(map(tokens_of_text, old)), size


def _changed_slots(
    before: Frame, values: Sequence[str], after: Frame, news: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the slots whose text differs, with both texts."""
    found = list[dict[str, str]]()
    for frame, texts in ((before, values), (after, news)):
        slots: dict[str, str] = {}
        names = (name for _, _, names in frame for name in names)
        for name, text in zip(names, texts, strict=True):
            slots[name] = slots.get(name, "") + text
        found.append(slots)
    old, new = found
    for name in dict.fromkeys((*old, *new)):
        if old.get(name, "") != new.get(name, ""):
            yield name, old.get(name, ""), new.get(name, "")


def _setting_kinds(before: RenderedCase, after: RenderedCase) -> Iterator[str]:
    if before.source.settings_text == after.source.settings_text and _named_tools(before) == _named_tools(after):
        return
    old, new = before.source.settings, after.source.settings
    for name in dict.fromkeys((*old, *new)):
        if json.dumps(old.get(name)) != json.dumps(new.get(name)):
            yield name
    if _named_tools(before) != _named_tools(after):
        yield "tools"


def _named_tools(case: RenderedCase) -> str:
    """Return the tools that only this case has."""
    return json.dumps(case.value.tools) if isinstance(case.value, Filled) and case.value.tools else ""


def _text(case: RenderedCase | str) -> str:
    """Return the messages as text to be shown, or the reason why there are none."""
    return case if isinstance(case, str) else "\n\n".join(f"{turn.role}:\n{turn.text}" for turn in case.turns)


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
