"""Comparison of the tested version of a prompt with a baseline version from git or a directory."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt._base.difference import Change, Part, compare, shared_length
from lazyprompt._base.secret import shown
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.files.filling import FilledFile
from lazyprompt.files.turns import CallItem, Turn
from lazyprompt.files.yaml_nodes import MAX_BYTES
from lazyprompt.rendering.markers import DEFAULT_MARKERS
from lazyprompt.rendering.prompt_template import controls_of, neutralize
from lazyprompt.tokens.approximate import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.testing.rendered import LoadedPrompt, RenderedCase, TurnText

PROVIDERS: Final = ("openai", "anthropic", "gemini")
"""The providers whose requests are compared; a test case has changed if any of these requests differs."""
_OWN_TEXT: Final = "instruction"
# The maximum number of a commit's files to read at once, to limit memory use.
_AT_ONCE: Final = 200


class CaseChange(NamedTuple):
    """A change to a test case between two prompt versions.

    Attributes:
        kinds: The changed parts: ``instruction``, ``slot NAME``, ``roles``, ``order``, ``tools``, ``model``,
            ``parameters``, ``answer form`` or ``safety``. ``error`` means that one version can't be rendered, and
            ``new`` that the file exists only in the tested version.
        tokens: The approximate number of added tokens.
        size: The number of differing characters, by which reports sort the changes.
        before: The prompt rendered with the baseline version of the prompt file, or the error message if rendering
            failed.
        after: The prompt rendered with the tested version of the prompt file, or the error message if rendering failed.
    """

    kinds: tuple[str, ...]
    tokens: int
    size: int
    before: RenderedCase | str
    after: RenderedCase | str

    @property
    def texts(self) -> tuple[str, str]:
        """The prompt's text in the baseline version, and its text in the tested version."""
        return _text(self.before), _text(self.after)


class Comparison:
    """A comparison of two versions of a prompt file, one test case at a time.

    Args:
        before: The prompt loaded from the baseline version, or the error message if loading failed; ``""`` if the file
            doesn't exist in the baseline version.
        after: The prompt loaded from the tested version, or the error message if loading failed.
    """

    def __init__(self, before: LoadedPrompt | str, after: LoadedPrompt | str) -> None:
        self._settings: tuple[str, ...] = ()
        if not (isinstance(before, str) or isinstance(after, str)):
            old, new = (
                [Part(name, json.dumps(shown(value))) for name, value in each.settings.items()]
                for each in (before, after)
            )
            self._settings = tuple(change.name for change in compare(old, new))
        self._controls = controls_of(DEFAULT_MARKERS)

    def change(self, before: RenderedCase | str, after: RenderedCase | str) -> CaseChange | None:
        """Compare the prompts that the baseline version and the tested version render for a test case.

        Args:
            before: The prompt rendered with the baseline version of the prompt file, or the error message if rendering
                failed.
            after: The prompt rendered with the tested version of the prompt file, or the error message if rendering
                failed.

        Returns:
            The change, or None if no request differs.
        """
        if isinstance(before, str) or isinstance(after, str):
            if isinstance(before, str) and isinstance(after, str):
                return None
            less, more = ("" if isinstance(each, str) else each.text for each in (before, after))
            kind = "error" if before else "new"
            return CaseChange((kind,), _tokens(more) - _tokens(less), len(less + more), before, after)
        kinds = [*self._settings, *_own_tools(before, after)]
        is_alike = not kinds and before.value == after.value
        if is_alike and not _has_calls(after.value):
            return None
        if not _has_other_text(before, after) and not _differ(before, after, is_alike=is_alike):
            return None
        shape = _shape_kinds(before.turns, after.turns)
        changes = [
            change
            for change in compare(_parts(before.slots), _parts(after.slots))
            if change.name != _OWN_TEXT or _OWN_TEXT in shape
        ]
        slots = [change for change in changes if change.name != _OWN_TEXT]
        kinds += [*shape, *(change.name for change in slots)]
        if any(map(self._is_forged_in_one, slots)):
            kinds.append("safety")
        tokens = sum(_tokens(change.after) - _tokens(change.before) for change in changes)
        size = sum(_distance(change.before, change.after) for change in changes)
        return CaseChange(tuple(kinds) or ("form",), tokens, size, before, after)

    def _is_forged_in_one(self, change: Change) -> bool:
        """Return True if a slot's text contains a control sequence of any model in only one prompt version."""
        before, after = change.before, change.after
        if self._controls.is_clean(f"{before}\n{after}"):
            return False
        return (neutralize(before) != before) != (neutralize(after) != after)


def _has_other_text(before: RenderedCase, after: RenderedCase) -> bool:
    """Return True if the text of any turn differs, which makes comparing requests unnecessary."""
    old, new = before.turns, after.turns
    is_chat = before.source.is_chat and after.source.is_chat
    if not is_chat or [turn.role for turn in old] != [turn.role for turn in new]:
        return False
    pairs = ((one.text.strip(), two.text.strip()) for one, two in zip(old, new, strict=True))
    return any(one and two and one != two for one, two in pairs)


def _differ(before: RenderedCase, after: RenderedCase, *, is_alike: bool) -> bool:
    """Return True if the requests for at least one provider differ, even if only in the order of their fields."""
    first, *others = PROVIDERS
    old, new = _request(before, first), _request(after, first)
    if old != new or json.dumps(old) != json.dumps(new):
        return True
    # The requests built from equal prompts can differ only in field order. OpenAI's two requests have the same field
    # order, so skip the other providers.
    return not is_alike and any(
        json.dumps(_request(before, each)) != json.dumps(_request(after, each)) for each in others
    )


def _has_calls(value: Prompt | FilledFile) -> bool:
    """Return True if a prompt may contain tool calls.

    Two prompts are equal even if the fields of their tool calls are in different orders.
    """
    if not isinstance(value, FilledFile):
        return any(isinstance(message.content, tuple) for message in value.history.messages)
    turns = (step for step in value.steps if isinstance(step, Turn))
    return any(isinstance(item, CallItem) for turn in turns for item in turn.items)


def _own_tools(before: RenderedCase, after: RenderedCase) -> tuple[str, ...]:
    """Return ``("tools",)`` if the tools defined in the text of a prompt file have changed."""
    own, others = (each.value.tools if isinstance(each.value, FilledFile) else () for each in (before, after))
    return ("tools",) if (own or others) and json.dumps(own) != json.dumps(others) else ()


def _request(case: RenderedCase, provider: str) -> JsonObject:
    try:
        return {**case.payload(provider)}
    except LazyPromptError as error:
        return {"error": str(error)}


def _shape_kinds(before: Sequence[TurnText], after: Sequence[TurnText]) -> list[str]:
    """List the changes between two prompts' turns, ignoring slot values.

    The changes are ``roles``, ``instruction`` (text outside slots) and ``order`` (the order of turns or slots).
    """
    old, new = ([(turn.role, _own_text(turn, "\0")) for turn in turns] for turns in (before, after))
    if sorted(old) == sorted(new):
        return ["order"] if old != new else []
    kinds: list[str] = []
    if sorted(role for role, _ in old) != sorted(role for role, _ in new):
        kinds.append("roles")
    if [*map(_own_text, before)] != [*map(_own_text, after)]:
        kinds.append(_OWN_TEXT)
    names, others = ([slot for turn in turns for slot, _ in turn.pieces if slot] for turns in (before, after))
    if sorted(names) == sorted(others) and (names != others or not kinds):
        kinds.append("order")
    return kinds


def _own_text(turn: TurnText, mark: str = "") -> str:
    """Return a turn's text without slot values; if ``mark`` is set, write slot names between marks in their place."""
    return "".join(f"{mark}{slot}{mark}" * bool(mark) if slot else text for slot, text in turn.pieces)


def _parts(slots: Mapping[str, str]) -> list[Part]:
    """Convert slot texts to named parts for comparison."""
    return [Part(f"slot {slot}" if slot else _OWN_TEXT, text) for slot, text in slots.items()]


@lru_cache(maxsize=64)
def _tokens(text: str) -> int:
    """Estimate the number of tokens in text. Results are cached, because most rows contain the same prompt text."""
    return approximate_tokens(text)


def _text(case: RenderedCase | str) -> str:
    """Return the messages as printable text, or the error message."""
    return case if isinstance(case, str) else "\n\n".join(f"{turn.role}:\n{turn.text}" for turn in case.turns)


def _distance(before: str, after: str) -> int:
    """Return the combined length of two texts without their common prefix and suffix."""
    if after.startswith(before):
        return len(after) - len(before)
    begin = shared_length(before, after)
    old, new = before[begin:], after[begin:]
    return len(old) + len(new) - (2 * shared_length(old[::-1], new[::-1]) if old and new else 0)


@contextmanager
def older_version(against: str, places: Sequence[Path]) -> Generator[Callable[[Path], Path]]:
    """Yield a function that maps the path of a tested file to the path of the file's baseline version.

    Args:
        against: The baseline: a git revision, or a directory with the same structure as the tested directory.
        places: The tested directories or files.

    Raises:
        BatchError: ``against`` is neither a directory nor a git revision, or git fails.
    """
    if against and Path(against).is_dir():
        yield _finder(Path(against), [place if place.is_dir() else place.parent for place in places])
        return
    top = Path(_git(["rev-parse", "--show-toplevel"], against).decode().strip())
    commit = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}"], against)
    with TemporaryDirectory(prefix="lazyprompt-") as directory:
        tree = Path(directory, "tree")
        tree.mkdir()
        _write_tree(top, commit.decode().strip(), against, tree)
        yield _finder(tree, [top])


def _write_tree(top: Path, commit: str, against: str, tree: Path) -> None:
    """Write a commit's files from its git objects, because a checkout would run the repository's filters and hooks.

    Symbolic links are skipped. Git rejects file names with "..".
    """
    listed = _git(["-C", str(top), "ls-tree", "-r", "-l", "-z", "--full-tree", commit], against)
    found = (
        (head.split(), name) for head, _, name in (entry.partition(b"\t") for entry in listed.split(b"\0")) if head
    )
    # Files larger than MAX_BYTES can't be prompt files.
    blobs = [(head[2], os.fsdecode(name)) for head, name in found if _is_file(head) and int(head[3]) <= MAX_BYTES]
    for begin in range(0, len(blobs), _AT_ONCE):
        _write_blobs(top, blobs[begin : begin + _AT_ONCE], against, tree)


def _is_file(head: Sequence[bytes]) -> bool:
    return head[1] == b"blob" and head[0].startswith(b"100")


def _write_blobs(top: Path, blobs: Sequence[tuple[bytes, str]], against: str, tree: Path) -> None:
    names = b"".join(blob + b"\n" for blob, _ in blobs)
    content = _git(["-C", str(top), "cat-file", "--batch"], against, names)
    at = 0
    for _, name in blobs:
        end = content.index(b"\n", at)
        begin, size = end + 1, int(content[at:end].split()[2])
        path = Path(tree, name)
        if not path.resolve().is_relative_to(tree.resolve()):
            raise BatchError(f"{against!r} contains the path {name!r}, which leads out of the directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[begin : begin + size])
        at = begin + size + 1


def _finder(root: Path, bases: Sequence[Path]) -> Callable[[Path], Path]:
    resolved = [base.resolve() for base in bases]

    def find(path: Path) -> Path:
        whole = path.parent.resolve() / path.name
        base = next((each for each in resolved if whole.is_relative_to(each)), None)
        if base is None:
            raise BatchError(f"{path} is outside {bases[0]}, so there is no version to compare with")
        return root / whole.relative_to(base)

    return find


# The repository may be untrusted, so disable hooks and other ways to run programs.
_NO_PROGRAMS: Final = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")


def _git(arguments: list[str], against: str, given: bytes = b"") -> bytes:
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    command = ["git", "--no-pager", "--no-replace-objects", *_NO_PROGRAMS, *arguments]
    try:
        made = subprocess.run(command, input=given, capture_output=True, env=environment, check=False)  # noqa: S603 - the user's git
    except OSError as error:
        raise BatchError(f"{against} is not a directory, and running git failed: {error.strerror}") from error
    if made.returncode:
        why = made.stderr.decode(errors="replace").strip() or "unknown revision, or missing from a shallow clone"
        raise BatchError(f"{against!r} is neither a directory nor a git revision: {why}")
    return made.stdout
