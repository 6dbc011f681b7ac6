"""JSON views of an edited prompt file for the studio page: the rendered prompt, the findings and the differences."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, cast

from lazyprompt import errors
from lazyprompt._base.secret import HiddenEnvironment
from lazyprompt._version import __version__
from lazyprompt.caching.prefix import check_prefix
from lazyprompt.errors import LazyPromptError, TokenizerError, did_you_mean
from lazyprompt.files.check.check import check
from lazyprompt.files.library.layers import FileCache
from lazyprompt.files.library.prompt_diff import GROUPS, diff_of
from lazyprompt.files.references import References
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.inspect.counting import counter_named
from lazyprompt.inspect.look import CallArguments, Look, look, look_json, shared_prefix, slot_diff
from lazyprompt.prompters.target_choice import OWN_FORMS
from lazyprompt.rendering.markers import DEFAULT_MARKERS, Markers
from lazyprompt.studio.reading import ATTACKS, WrongRequestError, as_kind, describe_input, first_values, read_draft
from lazyprompt.studio.workspace import SaveConflict, Workspace
from lazyprompt.tokens.vocabulary import vocabularies_here

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.properties import Property
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.studio.reading import CheckRequest, DiffRequest, Draft, LookRequest, SaveRequest
    from lazyprompt.tokens.counter import TokenCounter

_MOST_TEXTS: Final = 8
_TIKTOKEN: Final = "tiktoken:"
_PLAIN_COUNTERS: Final = ("approximate", "chars")
_SHORTER_ELSEWHERE: Final = ("tools", "history")
_PLACE: Final = re.compile(r":(\d+):(\d+): ")


class NotSavedError(Exception):
    """Raised when the edited prompt file could not be saved.

    Attributes:
        now: The current ``text`` and ``hash`` of the file if it has changed on disk; None if writing the file failed.
    """

    def __init__(self, why: str, now: JsonObject | None = None) -> None:
        super().__init__(why)
        self.now = now


class Looking:
    """Creates the studio page's JSON views of a workspace and its prompt files.

    Args:
        workspace: The workspace, which is a directory or a file.
        params: The values for ``${params:name}``.
        roots: Additional directories that files may refer to.
    """

    def __init__(
        self, workspace: Workspace, params: Mapping[str, object] | None = None, roots: tuple[Path, ...] = ()
    ) -> None:
        self.workspace = workspace
        # Resolve references as ``Prompty.load`` does for a single file, and as ``PromptLibrary`` does for a directory.
        layers = () if workspace.only is not None else (workspace.root,)
        self._references = References(
            None, roots, dict(params or {}), HiddenEnvironment(), layers=layers, connects_later=True
        )
        self._drafts: FileCache[Draft] = FileCache(_MOST_TEXTS)

    def _read(self, path: str, text: str) -> Draft:
        """Parse a text as a prompt file; the most recent results are cached until an included file changes.

        Raises:
            PromptFileError: The text is not a valid prompt file, or the path is outside the workspace.
        """
        place = self.workspace.place(path)
        return self._drafts.get((place, text), partial(read_draft, place, path, text, self._references))

    def about(self) -> JsonObject:
        """Return a description of the workspace, and the choices for the page's menus.

        Returns:
            ``root``, ``files`` (path, key, lang, version), ``families``, ``providers``, ``attacks`` (id, name),
            ``counters``, ``version``, and ``adds``, which is True if files can be added.

        Raises:
            PromptFileError: There are too many files or directories.
        """
        here = [f"{_TIKTOKEN}{name}" for name in vocabularies_here()]
        return {
            "root": self.workspace.root.name,
            "files": [each._asdict() for each in self.workspace.files()],
            "families": [*Markers.families()],
            "providers": [*PROVIDERS],
            "attacks": [{"id": each.id, "name": each.name} for each in ATTACKS],
            "counters": [*_PLAIN_COUNTERS, *here],
            "version": __version__,
            "adds": self.workspace.only is None,
        }

    def file(self, path: str) -> JsonObject:
        r"""Open a file.

        Args:
            path: The file's path in the workspace.

        Returns:
            ``path``, ``text``, ``hash``, ``newline`` (the line ending, such as ``\r\n``, or ``mixed``), ``inputs`` and
            ``values``. The dict also contains ``form`` and ``model``, which are None if the file names no provider, and
            ``error``, which is None if the file is valid.

        Raises:
            PromptFileError: The file cannot be read.
        """
        content = self.workspace.read(path)
        inputs: tuple[Property, ...] = ()
        error: JsonObject | None = None
        form: tuple[str | None, str | None] = (None, None)
        try:
            draft = self._read(path, content.text)
            inputs, form = draft.inputs, draft.form
        except LazyPromptError as wrong:
            error = error_json(wrong, path)
        return {
            "path": path,
            **content._asdict(),
            "newline": _newline(content.text),
            "inputs": [*map(describe_input, inputs)],
            "values": first_values(inputs),
            "form": form[0],
            "model": form[1],
            "error": error,
        }

    def versions(self, path: str) -> JsonObject:
        """Return the other versions and languages of a file.

        Args:
            path: The file's path in the workspace.

        Raises:
            PromptFileMissingError: The path is outside the workspace or does not name a prompt file.
        """
        self.workspace.place(path)
        files = self.workspace.files()
        keys = {each.key for each in files if each.path == path}
        return {
            "versions": [
                {"path": each.path, "version": each.version, "lang": each.lang}
                for each in files
                if each.key in keys and each.path != path
            ]
        }

    def look(self, asked: LookRequest) -> JsonObject:
        """Render the text of a prompt file, and return the data that the page displays.

        Args:
            asked: The request, which contains the prompt file's text, the inputs and the format.

        Returns:
            A dict with the keys ``look``, ``inputs`` and ``attacked``. If the prompt cannot be rendered, the dict
            contains only ``error`` and, if the text can be parsed, ``inputs``.

        Raises:
            PromptFileMissingError: The path is outside the workspace or does not name a prompt file.
            WrongRequestError: The attack is unknown.
        """
        self.workspace.place(asked.path)
        try:
            draft = self._read(asked.path, asked.text)
        except LazyPromptError as error:
            return {"error": error_json(error, asked.path)}
        inputs: list[Json] = [*map(describe_input, draft.inputs)]
        try:
            values, attacked = _with_attack(asked, draft)
            seen = look(
                draft.prompter,
                _call(draft, values, asked.history),
                title=asked.path,
                form=asked.form,
                model=asked.model,
                counter=_counter(asked.counter),
                max_tokens=asked.max_tokens,
                window=asked.window,
            )
        except LazyPromptError as error:
            return {"error": error_json(error, asked.path), "inputs": inputs}
        return {"look": _look_json(_without_negative_counts(seen)), "inputs": inputs, "attacked": attacked}

    def check(self, asked: CheckRequest) -> JsonObject:
        """Check the text of a prompt file with the rules of ``lazyprompt check``.

        Args:
            asked: The request, which contains the path and text of the prompt file.

        Returns:
            A dict with the key ``findings``, which contains a list of dicts with ``code``, ``severity``, ``message``,
            ``advice``, ``line`` and ``column``.

        Raises:
            PromptFileMissingError: The path is outside the workspace or does not name a prompt file.
        """
        place = self.workspace.place(asked.path)
        roots = (*self._references.layers, *self._references.roots)
        found = check(asked.text, name=asked.path, base_dir=place.parent, allowed_roots=roots)
        keys = ("code", "severity", "message", "advice", "line", "column")
        return {"findings": [{key: getattr(each, key) for key in keys} for each in found]}

    def diff(self, asked: DiffRequest) -> JsonObject:
        """Compare a saved prompt file with the edited text of a prompt file.

        Args:
            asked: The request, which contains the edited text, the paths of both prompt files, and the inputs for both
                prompts.

        Returns:
            A dict. The key ``changes`` contains the differences between the two files, and ``slots`` contains the
            differences by slot. The key ``shared`` describes the common prefix of the two prompts, and ``prefix``
            describes the first difference between two payloads. If one of the prompts cannot be filled, ``slots`` is
            None. If one of the prompt files cannot be parsed, the dict contains only ``error``.

        Raises:
            PromptFileError: The saved prompt file cannot be read.
        """
        self.workspace.place(asked.path)
        content = self.workspace.read(asked.other)
        sides: list[Draft] = []
        for path, text in ((asked.other, content.text), (asked.path, asked.text)):
            try:
                sides.append(self._read(path, text))
            except LazyPromptError as error:
                return {"error": error_json(error, path)}
        before, behind = sides
        comparison = diff_of(
            asked.other,
            asked.path,
            before.outline(content.text, asked.other),
            behind.outline(asked.text, asked.path),
        )
        changes: list[Json] = [
            {"kind": group, "name": change.name, "what": change.state, "lines": [*change.lines]}
            for group in GROUPS
            for change in getattr(comparison, group)
        ]
        try:
            looks = [
                _without_negative_counts(
                    look(side.prompter, _call(side, asked.inputs, asked.history), form=asked.form, model=asked.model)
                )
                for side in sides
            ]
        except LazyPromptError:
            # Ignore the error, because the prompt view already shows errors in the inputs.
            return {"changes": changes, "slots": None}
        slots: list[Json] = [{**each._asdict(), "lines": [*each.lines]} for each in slot_diff(*looks)]
        prefix = None if isinstance(looks[1].sent, str) else check_prefix(looks[0].sent, looks[1].sent)
        shared: JsonObject = {**shared_prefix(*looks)._asdict()}
        return {"changes": changes, "slots": slots, "shared": shared, "prefix": None if prefix is None else str(prefix)}

    def save(self, asked: SaveRequest) -> JsonObject:
        """Save the edited text to its file.

        Returns:
            The ``hash`` of the new content.

        Raises:
            PromptFileError: The text is too large, or the existing file cannot be read.
            NotSavedError: The file has changed since it was read, or cannot be written.
        """
        try:
            done = self.workspace.save(asked.path, asked.text, asked.hash)
        except LazyPromptError:  # some LazyPromptError subclasses are also OSErrors
            raise
        except OSError as error:
            raise NotSavedError(f"{asked.path} cannot be written: {error.strerror or error}") from error
        if isinstance(done, SaveConflict):
            raise NotSavedError(done.why, done.now._asdict() if done.now else {"hash": None, "text": None})
        return {"hash": done.hash}


def error_json(error: Exception, path: str) -> JsonObject:
    """Return an error as JSON for the page.

    Args:
        error: The error.
        path: The file that the page shows.

    Returns:
        The keys ``kind`` (the name of the error's class in ``lazyprompt.errors``, or None), ``message``, ``line`` and
        ``column``. The line and column are None if the position is unknown or in another file.
    """
    message = str(error)
    kind = next((each.__name__ for each in type(error).__mro__ if each.__module__ == errors.__name__), None)
    place = _PLACE.match(message, len(path)) if message.startswith(path) else None
    if place is None:
        return {"kind": kind, "message": message, "line": None, "column": None}
    return {"kind": kind, "message": message[place.end() :], "line": int(place[1]), "column": int(place[2])}


def _without_negative_counts(seen: Look) -> Look:
    """Return a Look in which no slot has a negative token count and the total is unchanged.

    Each slot's tokens are counted in OpenAI's format. If another provider's format needs fewer tokens, especially for
    tools and history, the count for ``framing`` is negative. The excess tokens are subtracted from the counts of the
    tools and the history first, and then from the slots with the largest counts.
    """
    excess = -sum(min(slot.tokens, 0) for slot in seen.slots)
    if not excess:
        return seen
    counts: dict[str, int] = {}
    for slot in sorted(seen.slots, key=lambda slot: (slot.name not in _SHORTER_ELSEWHERE, -slot.tokens)):
        subtracted = min(excess, max(slot.tokens, 0))
        counts[slot.name] = max(slot.tokens, 0) - subtracted
        excess -= subtracted
    return replace(seen, slots=tuple(slot._replace(tokens=counts[slot.name]) for slot in seen.slots))


def _look_json(seen: Look) -> JsonObject:
    """Return a Look as JSON, with its payload as text because JavaScript would change large numbers and key order."""
    text = seen.sent if isinstance(seen.sent, str) else json.dumps(seen.sent, ensure_ascii=False, indent=2)
    return look_json(seen) | {"text": text, "payload": not isinstance(seen.sent, str)}


def _call(draft: Draft, values: Mapping[str, Json], history: list[Json] | None) -> CallArguments:
    """Return the call arguments, without the values of inputs that the edited prompt file no longer declares."""
    named = {each.name for each in draft.inputs}
    given = {name: value for name, value in values.items() if name in named}
    return CallArguments(given or None, cast("HistoryLike | None", history))


def _with_attack(asked: LookRequest, draft: Draft) -> tuple[Mapping[str, Json], str | None]:
    """Insert the requested hostile value; return the inputs and the value, or None if no value was inserted."""
    if asked.attack is None:
        return asked.inputs, None
    attack = next((each for each in ATTACKS if each.id == asked.attack.id), None)
    if attack is None:
        known = [each.id for each in ATTACKS]
        raise WrongRequestError(f"unknown attack {asked.attack.id!r}{did_you_mean(asked.attack.id, known)}")
    kind = next((each.kind for each in draft.inputs if each.name == asked.attack.slot), None)
    if kind is None:
        # The text no longer contains the slot that the user chose.
        return asked.inputs, None
    family = asked.model if asked.form in OWN_FORMS else None
    markers = DEFAULT_MARKERS if family is None else Markers.for_model(family)
    value = attack.make(markers, asked.text)
    return {**asked.inputs, asked.attack.slot: as_kind(value, kind)}, value


@lru_cache(maxsize=8)
def _counter(name: str) -> TokenCounter:
    """Return the token counter with the given name; it is cached because loading a vocabulary is slow."""
    # Only local counters are allowed, because other counters call a provider or read a file.
    if name not in _PLAIN_COUNTERS and not name.startswith(_TIKTOKEN):
        raise TokenizerError(f"unknown counter {name!r}{did_you_mean(name, _PLAIN_COUNTERS)}")
    return counter_named(name)


def _newline(text: str) -> str:
    """Return the line ending that a text uses, or ``mixed`` if it uses several."""
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    found = [ending for ending, count in counts.items() if count]
    return "mixed" if len(found) > 1 else found[0] if found else "\n"
