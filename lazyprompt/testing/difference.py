"""Another version of prompts, in git or in a directory, and the difference of its requests for a case."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.files.filling import Filled
from lazyprompt.files.turns import Called, Turn
from lazyprompt.rendering.prompt_template import neutralize
from lazyprompt.tokens.approximate import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.testing.rendered import RenderedCase, Shape

PROVIDERS: Final = ("openai", "anthropic", "gemini")
"""A case has changed if its request to one of these has."""


class Change(NamedTuple):
    """The change of a case from one version to another.

    Attributes:
        kinds: The names of what changed: ``instruction``, ``slot NAME``, ``roles``, ``order``, ``tools``, ``model``,
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


class _ShapeChange(NamedTuple):
    """The change of all but values, which is the same for most rows.

    Attributes:
        kinds: As of :class:`Change`.
        tokens: As of :class:`Change`.
        size: As of :class:`Change`.
        has_same_slots: True if both have the same slots in the same order.
        is_certain: True if the text of a turn differs in length wherever the values are the same.
    """

    kinds: tuple[str, ...] = ()
    tokens: int = 0
    size: int = 0
    has_same_slots: bool = True
    is_certain: bool = False


def compared(before: RenderedCase | str, after: RenderedCase | str) -> Change | None:
    """Compare the prompts of a case, or the reasons why there are none.

    Args:
        before: The prompt of the other version.
        after: The prompt.

    Returns:
        The change; None if no request differs.
    """
    if isinstance(before, str) or isinstance(after, str):
        if isinstance(before, str) and isinstance(after, str):
            return None
        less, more = (0 if isinstance(each, str) else approximate_tokens(each.text) for each in (before, after))
        return Change(("error",), more - less, len(_text(before)) + len(_text(after)), before, after)
    has_same_settings = before.source.settings_text == after.source.settings_text and not _own_tools(before, after)
    is_alike = has_same_settings and before.value == after.value
    if is_alike and not _has_calls(after.value):
        return None
    (old, values), (new, news) = before.outline, after.outline
    shape = _shape_change(old, new)
    if not (shape.is_certain and values == news) and not _differ(before, after, is_alike=is_alike):
        return None
    kinds, tokens, size = shape.kinds, shape.tokens, shape.size
    if not has_same_settings:
        kinds = (*_setting_kinds(before, after), *kinds)
    if not (shape.has_same_slots and values == news):
        for slot, text, other in _changed_slots(old, values, new, news):
            kinds = (*kinds, f"slot {slot}")
            tokens += approximate_tokens(other) - approximate_tokens(text)
            size += _distance(text, other)
            if "safety" not in kinds and (neutralize(text) != text) != (neutralize(other) != other):
                kinds = (*kinds, "safety")
    return Change(kinds or ("form",), tokens, size, before, after)


def _differ(before: RenderedCase, after: RenderedCase, *, is_alike: bool) -> bool:
    """Return True if a request differs, by its bytes."""
    first, *others = PROVIDERS
    old, new = _request(before, first), _request(after, first)
    if old != new or json.dumps(old) != json.dumps(new):
        return True
    # OpenAI's request shows the order of fields, which equality does not; all other requests are made of these two.
    return not is_alike and any(
        json.dumps(_request(before, each)) != json.dumps(_request(after, each)) for each in others
    )


def _has_calls(value: Prompt | Filled) -> bool:
    """Return True if there may be calls or tools of the text, of which equality does not see the order of fields."""
    if not isinstance(value, Filled):
        return value.history.has_messages
    turns = (step for step in value.steps if isinstance(step, Turn))
    return bool(value.tools) or any(isinstance(item, Called) for turn in turns for item in turn.items)


def _request(case: RenderedCase, provider: str) -> object:
    try:
        return case.payload(provider)
    except LazyPromptError as error:
        return str(error)


@lru_cache(maxsize=64)
def _shape_change(before: Shape, after: Shape) -> _ShapeChange:
    if before == after:
        return _ShapeChange()
    names, others = ([name for _, _, names in shape for name in names] for shape in (before, after))
    old, new = (["".join(own) for _, own, _ in shape] for shape in (before, after))
    is_same = names == others
    size = _distance("".join(old), "".join(new))
    if sorted(before) == sorted(after):
        return _ShapeChange(("order",), 0, size, is_same)
    roles, news = ([role for role, _, _ in shape] for shape in (before, after))
    kinds = ["roles"] if sorted(roles) != sorted(news) else []
    if "".join(old) != "".join(new):
        kinds.append("instruction")
    if (not is_same and sorted(names) == sorted(others)) or (is_same and not kinds):
        kinds.append("order")
    tokens = sum(map(approximate_tokens, new)) - sum(map(approximate_tokens, old))
    # Blank texts are left out of requests.
    longer = (len(text) != len(other) and text.strip() and other.strip() for text, other in zip(old, new, strict=False))
    same_turns = [(role, slots) for role, _, slots in before] == [(role, slots) for role, _, slots in after]
    return _ShapeChange(tuple(kinds), tokens, size, is_same, same_turns and any(longer))


def _changed_slots(
    before: Shape, values: Sequence[str], after: Shape, news: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the slots whose text differs, with both texts."""
    found = list[dict[str, str]]()
    for shape, texts in ((before, values), (after, news)):
        slots: dict[str, str] = {}
        names = (name for _, _, names in shape for name in names)
        for name, text in zip(names, texts, strict=True):
            slots[name] = slots.get(name, "") + text
        found.append(slots)
    old, new = found
    for name in dict.fromkeys((*old, *new)):
        if old.get(name, "") != new.get(name, ""):
            yield name, old.get(name, ""), new.get(name, "")


def _setting_kinds(before: RenderedCase, after: RenderedCase) -> Iterator[str]:
    old, new = before.source.settings, after.source.settings
    own, others = _own_tools(before), _own_tools(after)
    for name in dict.fromkeys((*old, *new, "tools")):
        if json.dumps(old.get(name)) != json.dumps(new.get(name)) or (name == "tools" and own != others):
            yield name


def _own_tools(*cases: RenderedCase) -> str:
    """Return the tools that the texts of files name, which are those of a case."""
    found = [each.value.tools for each in cases if isinstance(each.value, Filled)]
    return json.dumps(found) if any(found) else ""


def _text(case: RenderedCase | str) -> str:
    """Return the messages as text to be shown, or the reason why there are none."""
    return case if isinstance(case, str) else "\n\n".join(f"{turn.role}:\n{turn.text}" for turn in case.turns)


def _distance(before: str, after: str) -> int:
    """Return the number of characters between the common beginning and the common end of two texts."""
    begin = _common(before, after)
    old, new = before[begin:], after[begin:]
    return len(old) + len(new) - 2 * _common(old[::-1], new[::-1])


def _common(before: str, after: str) -> int:
    """Return the length of the common beginning of two texts."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[low:middle] == after[low:middle] else (low, middle - 1)
    return low


@contextmanager
def older_version(against: str, places: Sequence[Path]) -> Generator[Callable[[Path], Path]]:
    """Yield a function that finds the file of another version.

    Args:
        against: A directory, in which files lie as in the directory that is tested; or a revision of git.
        places: The directories or files that are tested.

    Raises:
        BatchError: It is neither, or git fails.
    """
    if Path(against).is_dir():
        yield _finder(Path(against), [place if place.is_dir() else place.parent for place in places])
        return
    top = Path(_git(["rev-parse", "--show-toplevel"], against))
    commit = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}"], against)
    with TemporaryDirectory(prefix="lazyprompt-") as directory:
        # An index of its own: that of the repository stays as it is.
        index, tree = Path(directory, "index"), Path(directory, "tree")
        _git(["read-tree", f"--index-output={index}", commit], against, index=Path(directory, "empty"))
        _git(["-C", str(top), "checkout-index", "--all", "--quiet", f"--prefix={tree}/"], against, index=index)
        yield _finder(tree, [top])


def _finder(root: Path, bases: Sequence[Path]) -> Callable[[Path], Path]:
    resolved = [base.resolve() for base in bases]

    def find(path: Path) -> Path:
        whole = path.parent.resolve() / path.name
        base = next((each for each in resolved if whole.is_relative_to(each)), None)
        if base is None:
            raise BatchError(f"{path} lies outside of {bases[0]}, so it has no other version")
        return root / whole.relative_to(base)

    return find


def _git(arguments: list[str], against: str, index: Path | None = None) -> str:
    environment = {**os.environ} | ({} if index is None else {"GIT_INDEX_FILE": str(index)})
    try:
        made = subprocess.run(["git", *arguments], capture_output=True, env=environment, check=False)  # noqa: S603, S607 - the user's git
    except OSError as error:
        raise BatchError(f"{against} is no directory, and git cannot be run: {error.strerror}") from error
    if made.returncode:
        why = made.stderr.decode(errors="replace").strip() or "it is no revision"
        raise BatchError(f"{against!r} is neither a directory nor a revision of git here: {why}")
    return made.stdout.decode().strip()
