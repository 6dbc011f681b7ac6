"""Prompt libraries: trees of files that are found by key, language and version.

The file for a key is selected first by language (zh-CN, zh, then the default), then by layer, then by version (newest
first). A file in a higher layer takes precedence over files with the same key and language in lower layers, even over
newer versions. If a higher layer contains a prompt only in the default language, ``lang="zh"`` still selects the
Chinese file in a lower layer. A file without a version in its name is treated as older than all versions.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lazyprompt.errors import PromptFileError, PromptFileMissingError, did_you_mean
from lazyprompt.files.library.layers import FileCache, Layers
from lazyprompt.files.library.names import (
    SUFFIXES,
    YAML_SUFFIXES,
    LibraryEntry,
    Range,
    Version,
    directories,
    entries_in,
    entry_of,
    fallbacks,
)
from lazyprompt.files.library.prompt_diff import Outline, PromptDiff, diff_of, outline_of, outline_of_yaml, yaml_fields
from lazyprompt.files.loaded_prompty import Undefined, content_hash
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.references import References, text_in_place

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from lazyprompt.files.library.layers import LayerLike, Trace
    from lazyprompt.prompters.prompter import Prompter

_Listing: TypeAlias = "dict[str, tuple[LibraryEntry, ...]]"
# No part of a key begins with a dot or an underscore, so a key can't point outside the library's directory.
_KEY = re.compile(r"[^._/\\\0][^/\\\0]*(?:/[^._/\\\0][^/\\\0]*)*")
_MOST_PROMPTS, _MOST_DIRECTORIES = 1000, 4000
_LISTED = 12


class PromptLibrary:
    """A collection of prompts, looked up by key; see :mod:`lazyprompt.files.library.names` for the file names.

    Files are read on demand, and read again after they change. Libraries are thread-safe.

    Args:
        path: A directory, a package name, or a result of ``importlib.resources.files``. A directory takes precedence
            over a package with the same name.
        layers: Additional directories or packages that override ``path``, such as a team's own prompts, highest
            priority first.
        params: The values for ``${params:name}`` references, by name.
        allowed_roots: Additional directories that files may refer to.
        undefined: ``error`` to raise for undefined template variables, or ``empty`` to render them as empty text.
        environment: The values for ``${env:NAME}`` references. If None, the process environment is used.

    Raises:
        PromptFileError: A directory or package doesn't exist.
    """

    def __init__(
        self,
        path: LayerLike,
        *,
        layers: Iterable[LayerLike] = (),
        params: Mapping[str, object] | None = None,
        allowed_roots: Iterable[str | os.PathLike[str]] = (),
        undefined: Undefined = "error",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        given = (*layers,)
        roots = tuple(map(Path, allowed_roots))
        # Locks can't be pickled, so pickle a library as a call to its constructor with the original arguments.
        self._remade = partial(
            PromptLibrary,
            path,
            layers=given,
            params=params,
            allowed_roots=roots,
            undefined=undefined,
            environment=environment,
        )
        self._layers = Layers((*given, path))
        self._references = References(None, roots, dict(params or {}), environment, layers=self._layers.paths)
        self._undefined: Undefined = undefined
        self._prompts: FileCache[Prompty | PromptFile] = FileCache(_MOST_PROMPTS)
        self._listings: FileCache[_Listing] = FileCache(_MOST_DIRECTORIES)

    def get(self, key: str, lang: str | None = None, version: str | None = None) -> Prompty:
        """Return a prompt.

        Args:
            key: The key, such as ``support/refund``.
            lang: The language, with fallback to less specific languages and the default language. If None, the default
                language is used.
            version: A version, or a range such as ``^1.2``, ``~1.2``, ``1.x`` or ``>=1 <2``, which selects the newest
                match. If None, the newest release is used, or the file without a version if no release exists.

        Returns:
            The prompt. Repeated calls return the same object until one of the prompt's files changes.

        Raises:
            PromptFileError: The prompt doesn't exist, two files have the same name, the file is invalid, or the file is
                a YAML prompt file (use :meth:`prompter`).
        """
        made = self._loaded(self.entry(key, lang, version))
        if isinstance(made, PromptFile):
            raise PromptFileError(
                f"{made.path}:1:1: this is a YAML prompt file, not a .prompty file; use .prompter({key!r}), which "
                "loads both"
            )
        return made

    async def aget(self, key: str, lang: str | None = None, version: str | None = None) -> Prompty:
        """Async version of :meth:`get` that reads files in a thread."""
        return await asyncio.to_thread(self.get, key, lang, version)

    def prompter(self, key: str, lang: str | None = None, version: str | None = None) -> Prompter:
        """Return the prompter for a prompt, from a ``.prompty`` file or a YAML file.

        Args:
            key: The key; see :meth:`get` for all arguments.
            lang: The language of the prompt.
            version: The version or range of versions.

        Raises:
            PromptFileError: The prompt doesn't exist, or the file is invalid.
        """
        return self._loaded(self.entry(key, lang, version)).prompter

    def entry(self, key: str, lang: str | None = None, version: str | None = None) -> LibraryEntry:
        """Return the file that :meth:`get` reads.

        Args:
            key: The key; see :meth:`get` for all arguments.
            lang: The language of the prompt.
            version: The version or range of versions.

        Raises:
            PromptFileError: No file matches the arguments, or two files in a layer of the library have the same name.
        """
        wanted = None if version is None else Range.read(version)
        entries = self.entries(key)
        languages = fallbacks(lang)
        for tag in languages:
            for layer in self._layers.paths:
                # Compare layers by identity, because comparing paths would double the time of this method.
                found = [
                    each for each in entries if each.layer is layer and each.lang == tag and _fits(each.version, wanted)
                ]
                if found:
                    return max(found, key=_sort_key)
        raise PromptFileMissingError(_explain_missing(key, lang, version, entries, languages))

    def entries(self, key: str) -> tuple[LibraryEntry, ...]:
        """Return all files for a key, sorted by layer, language (default first) and version (oldest first).

        Raises:
            PromptFileError: The key doesn't exist, or two files in a layer of the library have the same name.
        """
        directory, slash, _ = key.rpartition("/")
        plain = _KEY.fullmatch(key)
        found = tuple(
            each
            for layer in (self._layers.paths if plain else ())
            for each in self._listing(layer, directory + slash).get(key, ())
        )
        if not found:
            keys = self.keys()
            # If the caller passed a file name, suggest the file's key.
            near = did_you_mean(key.removesuffix(suffix) if (suffix := Path(key).suffix) in SUFFIXES else key, keys)
            raise PromptFileMissingError(
                f"no prompt {key!r}{near} in {self._where}; available prompts: {_join_names(keys)}"
            )
        seen: dict[tuple[Path, str, Version | None], LibraryEntry] = {}
        for each in found:
            other = seen.setdefault((each.layer, each.lang, each.version), each)
            if other is not each:
                raise PromptFileError(
                    f"{other.path} and {each.path} are both {_label(each)}; rename one of them or change its version"
                )
        return found

    def keys(self) -> tuple[str, ...]:
        """Return all keys in sorted order.

        Raises:
            PromptFileError: A file name is invalid.
        """
        places = [(layer, directory) for layer in self._layers.paths for directory in directories(layer)]
        return tuple(sorted({key for place in places for key in self._listing(*place)}))

    def __getitem__(self, name: str) -> Prompty:
        """Return a prompt by its file name without the suffix, such as ``support/refund.zh@1.0.0``.

        Args:
            name: The name as ``key[.language][@version]``; the version may be a range.

        Raises:
            PromptFileError: See :meth:`get`.
        """
        return self.get(*self._parts(name))

    def __contains__(self, name: object) -> bool:
        """Return True if :meth:`__getitem__` finds a file with this name."""
        try:
            return isinstance(name, str) and bool(self.entry(*self._parts(name)))
        except PromptFileMissingError:
            return False

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys in sorted order."""
        return iter(self.keys())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.keys())

    def __bool__(self) -> bool:
        """Return True, even for an empty library."""
        return True

    def _parts(self, name: str) -> tuple[str, str | None, str | None]:
        """Split a name into key, language and version."""
        stem, at, version = name.partition("@")
        directory, slash, last = stem.rpartition("/")
        named = entry_of(f"{last}.prompty", directory + slash, self._layers.paths[0])
        key, lang = (named.key, named.lang) if named else (stem, "")
        return key, lang or None, version if at else None

    def versions(self, key: str, lang: str | None = None) -> tuple[str, ...]:
        """Return the versions of a prompt, oldest first, ignoring files without a version.

        Args:
            key: The key of the prompt.
            lang: The language of the files; fallback languages are not searched. If None, all languages are included.

        Raises:
            PromptFileError: The key doesn't exist.
        """
        tag = None if lang is None else fallbacks(lang)[0]
        found = {each.version for each in self.entries(key) if each.version and tag in (None, each.lang)}
        return tuple(map(str, sorted(found)))

    def languages(self, key: str) -> tuple[str, ...]:
        """Return the languages of a prompt in sorted order, without the default language.

        Raises:
            PromptFileError: The key doesn't exist.
        """
        return tuple(sorted({each.lang for each in self.entries(key) if each.lang}))

    def hash(self, key: str, lang: str | None = None, version: str | None = None) -> str:
        """Return the SHA-256 hash of a prompt's contents; see :attr:`lazyprompt.Prompty.hash`.

        Args:
            key: The key; see :meth:`get` for all arguments.
            lang: The language of the prompt.
            version: The version or range of versions.

        Raises:
            PromptFileError: The prompt doesn't exist, or the file is invalid.
        """
        entry = self.entry(key, lang, version)
        made = self._loaded(entry)
        if not isinstance(made, PromptFile):
            return made.hash
        return content_hash("yaml", yaml_fields(self.text(entry), str(entry.path)))

    def diff(self, key: str, a: str | None, b: str | None, lang: str | None = None) -> PromptDiff:
        """Compare the inputs, tools, settings and sections of two versions of a prompt.

        Args:
            key: The key of the prompt.
            a: The first version; see :meth:`get`.
            b: The second version; see :meth:`get`.
            lang: The language of both versions.

        Raises:
            PromptFileError: A version doesn't exist, or a file is invalid.
        """
        before, behind = self.entry(key, lang, a), self.entry(key, lang, b)
        return diff_of(_label(before), _label(behind), self._outline(before), self._outline(behind))

    @property
    def _where(self) -> str:
        return ", ".join(map(str, self._layers.paths))

    def _listing(self, layer: Path, directory: str) -> _Listing:
        return self._listings.get((layer, directory), partial(_listing, layer, directory))

    def _loaded(self, entry: LibraryEntry) -> Prompty | PromptFile:
        return self._prompts.get(entry.path, partial(self._read, entry))

    def _read(self, entry: LibraryEntry, trace: Trace) -> Prompty | PromptFile:
        plain, path = self._references, entry.path
        trace.file(path)
        text = self.text(entry)
        if path.suffix.lower() in YAML_SUFFIXES:
            return PromptFile.of_file(path, text)
        references = replace(plain, base=path.parent, trace=trace)
        return Prompty.of_file(path, references, self._undefined, text=text)

    def text(self, entry: LibraryEntry) -> str:
        """Read the text of a file, and refuse symbolic links that lead out of the library.

        Args:
            entry: The file to read.

        Raises:
            PromptFileError: The file is outside the library or can't be read.
        """
        return text_in_place(entry.path, (*self._references.roots, *self._layers.paths), entry.layer)

    def _outline(self, entry: LibraryEntry) -> Outline:
        made = self._loaded(entry)
        if isinstance(made, PromptFile):
            return outline_of_yaml(self.text(entry), str(entry.path), made)
        return outline_of(made)

    def __reduce__(self) -> tuple[object, ...]:
        return self._remade, ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._where!r})"


def _listing(layer: Path, directory: str, trace: Trace) -> _Listing:
    """Return the files in a directory, grouped by key."""
    found: dict[str, list[LibraryEntry]] = {}
    for each in sorted(entries_in(layer, directory, trace), key=lambda one: (one.lang, _sort_key(one))):
        found.setdefault(each.key, []).append(each)
    return {key: tuple(entries) for key, entries in found.items()}


def _fits(version: Version | None, wanted: Range | None) -> bool:
    if version is None or wanted is None:
        return wanted is None and (version is None or not version.pre)
    return wanted.holds(version)


def _sort_key(entry: LibraryEntry) -> tuple[bool, Version]:
    """Return a key for sorting files by version; files without a version come first."""
    return entry.version is not None, entry.version or Version((0, 0, 0))


def _label(entry: LibraryEntry) -> str:
    """Return the name of a file without its suffix."""
    lang = f".{entry.lang}" if entry.lang else ""
    return f"{entry.key}{lang}" + (f"@{entry.version}" if entry.version else "")


def _explain_missing(
    key: str, lang: str | None, version: str | None, entries: tuple[LibraryEntry, ...], languages: tuple[str, ...]
) -> str:
    """Explain why a key has no file with the given language and version."""
    in_them = [each for each in entries if each.lang in languages]
    if not in_them:
        known = dict.fromkeys(each.lang for each in entries)
        asked = f"in the language {lang!r} or the default language" if lang else "in the default language"
        names = _join_names(known)
        return f"no prompt {key!r} {asked}{did_you_mean(lang or '', known)}; pass lang=, one of {names}"
    known = dict.fromkeys(str(each.version) for each in in_them if each.version)
    there = f"available versions: {_join_names(known)}" if known else "its file has no version in its name"
    if version is None:
        return f"no released version of the prompt {key!r}; {there}; pass version="
    return f"no version {version!r} of the prompt {key!r}{did_you_mean(version, known)}; {there}"


def _join_names(names: Iterable[str]) -> str:
    shown = [*names]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return (", ".join(shown[:_LISTED]) or "none") + more
