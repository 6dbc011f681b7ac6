"""Another version of prompts, in git or in a directory, and the difference of its requests for a case."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.files.filling import Filled
from lazyprompt.files.turns import Called, Turn
from lazyprompt.inspect.look import shared_length
from lazyprompt.rendering.markers import DEFAULT_MARKERS
from lazyprompt.rendering.prompt_template import controls_of, neutralize
from lazyprompt.tokens.approximate import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.testing.rendered import LoadedPrompt, RenderedCase, Shape, TurnShape

    _Finder: TypeAlias = Callable[[Sequence[str]], str]

PROVIDERS: Final = ("openai", "anthropic", "gemini")
"""A case has changed if its request to one of these has."""
# The fields of requests that hold what is of a case.
_MESSAGES: Final = frozenset(("messages", "input", "instructions", "prompt", "error"))
_MOST_SHAPES: Final = 64
_MOST_COUNTED: Final = 32
_NOT_COUNTED: Final = (0, 0, 0)


class Change(NamedTuple):
    """The change of a case from one version to another.

    Attributes:
        kinds: The names of what changed: ``instruction``, ``slot NAME``, ``roles``, ``order``, ``tools``, ``model``,
            ``parameters``, ``answer form``, ``safety``; ``error`` if one version has no prompt, ``new`` if the other
            has no such file.
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
        slots: The name of each slot and of its change, with what finds its text among the values before, and after.
        is_certain: True if the text of a turn differs wherever the values are the same.
        longer: The number of characters that own text has more; None if turns may have no text, or another system text.
    """

    kinds: tuple[str, ...]
    tokens: int
    size: int
    slots: tuple[tuple[str, str, _Finder, _Finder], ...]
    is_certain: bool
    longer: int | None


class Comparison:
    """Compares the prompts of two versions of a file, case by case; it keeps what is the same for most cases.

    Args:
        before: The other version, or the reason why it cannot be read; ``""`` if there is no such file.
        after: The version that is tested, or the reason why there is none.
    """

    def __init__(self, before: LoadedPrompt | str, after: LoadedPrompt | str) -> None:
        self._settings: tuple[str, ...] = ()
        self._is_chat = all(isinstance(each, str) or each.is_chat for each in (before, after))
        if not (isinstance(before, str) or isinstance(after, str)):
            old, new = before.settings, after.settings
            self._settings = tuple(
                name for name in {**old, **new} if json.dumps(old.get(name)) != json.dumps(new.get(name))
            )
        self._fields_differ: bool | None = None
        self._controls = controls_of(DEFAULT_MARKERS)
        self._shapes: dict[tuple[Hashable, Hashable], _ShapeChange] = {}
        self._last: tuple[tuple[Hashable, Hashable], _ShapeChange] = ((), ()), _shape_change((), ())
        self._rates: dict[str, tuple[int, int, int]] = {}

    def change(self, before: RenderedCase | str, after: RenderedCase | str) -> Change | None:
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
            less, more = ("" if isinstance(each, str) else each.text for each in (before, after))
            kind = "error" if before else "new"
            return Change((kind,), self._tokens_more("", less, more), len(less + more), before, after)
        tools = _own_tools(before, after) if isinstance(after.value, Filled) else ()
        (old, values), (new, news) = before.outline, after.outline
        shape = self._shape_change((old, new), before, after)
        has_same_values = values == news
        if has_same_values:
            is_certain = shape.is_certain or bool(shape.longer)
        else:
            is_certain = shape.longer is not None and shape.longer + sum(map(len, news)) != sum(map(len, values))
        if not is_certain:
            is_alike = not (self._settings or tools) and before.value == after.value
            if is_alike and not _has_calls(after.value):
                return None
            if not (self._is_certain(before, after, tools) or _differ(before, after, is_alike=is_alike)):
                return None
        kinds, tokens, size = (*self._settings, *tools, *shape.kinds), shape.tokens, shape.size
        for slot, kind, found_before, found_after in () if shape.is_certain and has_same_values else shape.slots:
            text, other = found_before(values), found_after(news)
            if text != other:
                kinds = (*kinds, kind)
                tokens += self._tokens_more(slot, text, other)
                size += _distance(text, other)
                if "safety" not in kinds and self._is_forged_in_one(text, other):
                    kinds = (*kinds, "safety")
        return Change(kinds or ("form",), tokens, size, before, after)

    def _is_certain(self, before: RenderedCase, after: RenderedCase, tools: Sequence[str]) -> bool:
        """Return True if requests differ beside messages, or by the text of a turn; False if that is not known."""
        if self._settings and not tools:
            if self._fields_differ is None:
                old, new = _request(before, PROVIDERS[0]), _request(after, PROVIDERS[0])
                names = {*old, *new} - _MESSAGES
                self._fields_differ = any(json.dumps(old.get(name)) != json.dumps(new.get(name)) for name in names)
            if self._fields_differ:
                return True
        texts, others = _texts(before), _texts(after)
        if len(texts) != len(others) or texts[:1] != others[:1]:
            return False
        return any(one != two and one.strip() and two.strip() for one, two in zip(texts, others, strict=True))

    def _shape_change(self, keys: tuple[Hashable, Hashable], before: RenderedCase, after: RenderedCase) -> _ShapeChange:
        """Return the change of two shapes, by their keys: mostly that of the last case, which takes no hash."""
        if keys != self._last[0]:
            found = self._shapes.get(keys)
            if found is None:
                found = _shape_change(before.shape, after.shape)
                found = found if self._is_chat else found._replace(is_certain=False, longer=None)
                if len(self._shapes) == _MOST_SHAPES:
                    self._shapes.clear()
                self._shapes[keys] = found
            self._last = keys, found
        return self._last[1]

    def _is_forged_in_one(self, before: str, after: str) -> bool:
        """Return True if one of two texts holds a control sequence of any model, and the other does not."""
        if self._controls.clean(f"{before}\n{after}"):
            return False
        return (neutralize(before) != before) != (neutralize(after) != after)

    def _tokens_more(self, slot: str, before: str, after: str) -> int:
        """Return about how many tokens a text has more: by its length, if many of the slot were counted."""
        texts, tokens, length = self._rates.get(slot, _NOT_COUNTED)
        if texts >= _MOST_COUNTED:
            return round((len(after) - len(before)) * tokens / length)
        old, new = approximate_tokens(before), approximate_tokens(after)
        self._rates[slot] = texts + 1, tokens + old + new, length + len(before) + len(after)
        return new - old


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
    """Return True if there may be calls of the text, of which equality does not see the order of fields."""
    if not isinstance(value, Filled):
        return value.history.has_messages
    turns = (step for step in value.steps if isinstance(step, Turn))
    return any(isinstance(item, Called) for turn in turns for item in turn.items)


def _own_tools(before: RenderedCase, after: RenderedCase) -> tuple[str, ...]:
    """Return the kind of a change of the tools that the text of a file names; ``()`` if there are none."""
    own, others = (each.value.tools if isinstance(each.value, Filled) else () for each in (before, after))
    return ("tools",) if (own or others) and json.dumps(own) != json.dumps(others) else ()


def _texts(case: RenderedCase) -> tuple[str, ...]:
    """Return the roles and the text of each turn, which chats of OpenAI have as it is; ``()`` if they have more."""
    value = case.value
    if not isinstance(value, Filled):
        if value.history.has_messages:
            return ()
        own, question = "".join(value.instruction.parts), "".join(value.user.parts)
        return case.source.system if value.system is None else value.system, own, question + (value.input or "")
    turns = [step for step in value.steps if isinstance(step, Turn) and not step.attributes]
    texts = [turn.only_text.text for turn in turns if turn.only_text is not None]
    is_whole = case.source.is_chat and len(texts) == len(value.steps)
    return (" ".join(turn.role for turn in turns), *texts) if is_whole else ()


def _request(case: RenderedCase, provider: str) -> JsonObject:
    try:
        return {**cast("JsonObject", case.payload(provider))}
    except LazyPromptError as error:
        return {"error": str(error)}


def _shape_change(before: Shape, after: Shape) -> _ShapeChange:
    names, others = ([name for _, _, names in shape for name in names] for shape in (before, after))
    all_names = dict.fromkeys((*names, *others))
    slots = tuple((name, f"slot {name}", _finder_of(name, names), _finder_of(name, others)) for name in all_names)
    old, new = (["".join(own) for _, own, _ in shape] for shape in (before, after))
    kinds: list[str] = []
    if before != after and sorted(before) == sorted(after):
        kinds.append("order")
    elif before != after:
        if sorted(role for role, _, _ in before) != sorted(role for role, _, _ in after):
            kinds.append("roles")
        if "".join(old) != "".join(new):
            kinds.append("instruction")
        if sorted(names) == sorted(others) and (names != others or not kinds):
            kinds.append("order")
    tokens = sum(map(approximate_tokens, new)) - sum(map(approximate_tokens, old))
    # A system text may end in what the other version has as its instruction.
    is_known = bool(before and after) and before[0][1][:1] == after[0][1][:1]
    is_certain = is_known and [each[::2] for each in before] == [each[::2] for each in after]
    is_certain = is_certain and any(map(_turn_differs, before, after))
    longer = len("".join(new)) - len("".join(old)) if is_known and all(map(str.strip, (*old, *new))) else None
    size = _distance("".join(old), "".join(new))
    return _ShapeChange(tuple(kinds), tokens, size, slots, is_certain, longer)


def _finder_of(name: str, names: Sequence[str]) -> _Finder:
    """Return what finds the text of a slot, which may stand at several places, among the values of all."""
    places = [at for at, each in enumerate(names) if each == name]
    if not places:
        return lambda _values: ""
    found = itemgetter(*places)
    return found if len(places) == 1 else lambda values: "".join(found(values))


def _turn_differs(before: TurnShape, after: TurnShape) -> bool:
    """Return True if a turn has another text wherever the values are the same: as long, at the same places."""
    (_, old, _), (_, new, _) = before, after
    return old != new and [*map(len, old)] == [*map(len, new)] and bool("".join(old).strip() and "".join(new).strip())


def _text(case: RenderedCase | str) -> str:
    """Return the messages as text to be shown, or the reason why there are none."""
    return case if isinstance(case, str) else "\n\n".join(f"{turn.role}:\n{turn.text}" for turn in case.turns)


def _distance(before: str, after: str) -> int:
    """Return the number of characters between the common beginning and the common end of two texts."""
    if after.startswith(before):
        return len(after) - len(before)
    begin = shared_length(before, after)
    old, new = before[begin:], after[begin:]
    return len(old) + len(new) - (2 * shared_length(old[::-1], new[::-1]) if old and new else 0)


@contextmanager
def older_version(against: str, places: Sequence[Path]) -> Generator[Callable[[Path], Path]]:
    """Yield a function that finds the file of another version.

    Args:
        against: A directory, in which files lie as in the directory that is tested; or a revision of git.
        places: The directories or files that are tested.

    Raises:
        BatchError: It is neither, or git fails.
    """
    if against and Path(against).is_dir():
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
        why = made.stderr.decode(errors="replace").strip() or "it is no revision, or a shallow clone lacks it"
        raise BatchError(f"{against!r} is neither a directory nor a revision of git here: {why}")
    return made.stdout.decode().strip()
