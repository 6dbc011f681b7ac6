"""A library of prompts: a tree of files, found by key, language and version.

The prompt of a key is chosen in this order: the nearest language for which there is any such file (zh-CN, zh, then the
default); of that the first layer that has one; of those in it the newest. So layers are as one tree, in which a team's
file replaces a package's file of the same key and language, whatever versions that has; and a reader of Chinese gets
the package's Chinese prompt, also where the team has changed the default one alone.
A file without a version in its name is older than all that have one.
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
# Names that begin with a dot or an underscore are those of no prompts; so no path leads out of the tree.
_KEY = re.compile(r"[^._/\\\0][^/\\\0]*(?:/[^._/\\\0][^/\\\0]*)*")
_MOST_PROMPTS, _MOST_DIRECTORIES = 1000, 4000
# How many names an error lists.
_LISTED = 12


class PromptLibrary:
    """Prompts by their keys; see :mod:`lazyprompt.files.library.names` for the names of their files.

    Files are read when they are asked for, and again when they have changed; many threads may use one library.

    Args:
        path: A directory, the name of a package, or a value of ``importlib.resources.files``. Where there are a
            directory and a package of the name, it is the directory.
        layers: More of these that go before it, the first one first: a team's own over a package's.
        params: The values of ``${params:name}``.
        allowed_roots: Directories that files may refer to, beside those of the library.
        undefined: The value of a variable that is nowhere: an ``error``, or ``empty``.
        environment: The values of ``${env:NAME}``; None are those of the process.

    Raises:
        PromptFileError: There is no such directory or package.
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
        # Pickled as what it was made of: locks cannot travel.
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
            key: Its key, as ``support/refund``.
            lang: The language; where there is none in it, a wider one and then the default are given. None is the
                default.
            version: A version, or a range as ``^1.2``, ``~1.2``, ``1.x`` or ``>=1 <2``, of which the newest is given;
                None is the newest that is released, or else the file without a version.

        Returns:
            The prompt: the same object as long as its files stay as they are.

        Raises:
            PromptFileError: There is none, two files have the same name, or the file is wrong. Also where it is a YAML
                prompt file, which has a :meth:`prompter` and no more.
        """
        made = self._loaded(self.entry(key, lang, version))
        if isinstance(made, PromptFile):
            raise PromptFileError(
                f"{made.path}:1:1: this is a YAML prompt file, and no .prompty; use .prompter({key!r}), which gives "
                "the prompter of either"
            )
        return made

    async def aget(self, key: str, lang: str | None = None, version: str | None = None) -> Prompty:
        """Async version of :meth:`get`: files are read in a thread."""
        return await asyncio.to_thread(self.get, key, lang, version)

    def prompter(self, key: str, lang: str | None = None, version: str | None = None) -> Prompter:
        """Return the prompter of a prompt, of whichever kind its file is.

        Args:
            key: As of :meth:`get` (so with all others).
            lang: The language.
            version: The version.

        Raises:
            PromptFileError: There is none, or the file is wrong.
        """
        return self._loaded(self.entry(key, lang, version)).prompter

    def entry(self, key: str, lang: str | None = None, version: str | None = None) -> LibraryEntry:
        """Return the file that :meth:`get` reads.

        Args:
            key: As of :meth:`get` (so with all others).
            lang: The language.
            version: The version.

        Raises:
            PromptFileError: There is none, or two files have the same name.
        """
        wanted = None if version is None else Range.read(version)
        entries = self.entries(key)
        languages = fallbacks(lang)
        for tag in languages:
            for layer in self._layers.paths:
                # Each entry holds the path of its layer itself: to compare two paths takes as long as all the rest.
                found = [
                    each for each in entries if each.layer is layer and each.lang == tag and _fits(each.version, wanted)
                ]
                if found:
                    return max(found, key=_sort_key) if len(found) > 1 else found[0]
        raise PromptFileMissingError(_explain_missing(key, lang, version, entries, languages))

    def entries(self, key: str) -> tuple[LibraryEntry, ...]:
        """Return all files of a key: layer by layer, the default language first, the oldest first.

        Raises:
            PromptFileError: There is none, or two files of a layer have the same name.
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
            # For the name of a file, the error names its key.
            near = did_you_mean(key.removesuffix(suffix) if (suffix := Path(key).suffix) in SUFFIXES else key, keys)
            raise PromptFileMissingError(
                f"there is no prompt {key!r}{near}; in {self._where} there are {_join_names(keys)}"
            )
        if len(found) == 1:
            return found
        seen: dict[tuple[Path, str, Version | None], LibraryEntry] = {}
        for each in found:
            other = seen.setdefault((each.layer, each.lang, each.version), each)
            if other is not each:
                raise PromptFileError(
                    f"{other.path} and {each.path} are both {_label(each)}; give one of them another name or version"
                )
        return found

    def keys(self) -> tuple[str, ...]:
        """Return all keys, by the alphabet.

        Raises:
            PromptFileError: A file has a name that no prompt has.
        """
        places = [(layer, directory) for layer in self._layers.paths for directory in directories(layer)]
        return tuple(sorted({key for place in places for key in self._listing(*place)}))

    def __getitem__(self, name: str) -> Prompty:
        """Return the prompt of a name, as files have it: ``support/refund``, ``support/refund.zh@1.0.0``.

        Args:
            name: ``key[.language][@version]``; the version may be a range.

        Raises:
            PromptFileError: As of :meth:`get`.
        """
        return self.get(*self._parts(name))

    def __contains__(self, name: object) -> bool:
        """Return True if there is a file of a name, as :meth:`__getitem__` takes it."""
        try:
            return isinstance(name, str) and bool(self.entry(*self._parts(name)))
        except PromptFileMissingError:
            return False

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys, by the alphabet."""
        return iter(self.keys())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.keys())

    def __bool__(self) -> bool:
        """Return True: a library without prompts is one, too."""
        return True

    def _parts(self, name: str) -> tuple[str, str | None, str | None]:
        """Split a name into key, language and version."""
        stem, at, version = name.partition("@")
        directory, slash, last = stem.rpartition("/")
        named = entry_of(f"{last}.prompty", directory + slash, self._layers.paths[0])
        key, lang = (named.key, named.lang) if named else (stem, "")
        return key, lang or None, version if at else None

    def versions(self, key: str, lang: str | None = None) -> tuple[str, ...]:
        """Return the versions of a prompt, the newest last; files without one do not count.

        Args:
            key: The key.
            lang: The language, without fallbacks; None is all.

        Raises:
            PromptFileError: There is no such key.
        """
        tag = None if lang is None else fallbacks(lang)[0]
        found = {each.version for each in self.entries(key) if each.version and tag in (None, each.lang)}
        return tuple(map(str, sorted(found)))

    def languages(self, key: str) -> tuple[str, ...]:
        """Return the languages of a prompt, by the alphabet; the default has no name and is not among them.

        Raises:
            PromptFileError: There is no such key.
        """
        return tuple(sorted({each.lang for each in self.entries(key) if each.lang}))

    def hash(self, key: str, lang: str | None = None, version: str | None = None) -> str:
        """Return the SHA-256 of the contents of a prompt; see :attr:`lazyprompt.Prompty.hash`.

        Args:
            key: As of :meth:`get` (so with all others).
            lang: The language.
            version: The version.

        Raises:
            PromptFileError: There is none, or the file is wrong.
        """
        entry = self.entry(key, lang, version)
        made = self._loaded(entry)
        if not isinstance(made, PromptFile):
            return made.hash
        return content_hash("yaml", yaml_fields(self.text(entry), str(entry.path)))

    def diff(self, key: str, a: str | None, b: str | None, lang: str | None = None) -> PromptDiff:
        """Compare two versions of a prompt: inputs, tools, settings and sections, and lines in these.

        Args:
            key: The key.
            a: The one version, as of :meth:`get`.
            b: The other version.
            lang: The language of both.

        Raises:
            PromptFileError: One of them is not there, or a file is wrong.
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
        """Return the text of a file, read through no link that leads out of the library.

        Args:
            entry: The file.

        Raises:
            PromptFileError: It lies elsewhere, or cannot be read.
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
    """Return the files of a directory by their keys."""
    found: dict[str, list[LibraryEntry]] = {}
    for each in sorted(entries_in(layer, directory, trace), key=lambda one: (one.lang, _sort_key(one))):
        found.setdefault(each.key, []).append(each)
    return {key: tuple(entries) for key, entries in found.items()}


def _fits(version: Version | None, wanted: Range | None) -> bool:
    if version is None or wanted is None:
        return wanted is None and (version is None or not version.pre)
    return wanted.holds(version)


def _sort_key(entry: LibraryEntry) -> tuple[bool, Version]:
    """Return the sorting key of files; one without a version is the oldest."""
    return entry.version is not None, entry.version or Version((0, 0, 0))


def _label(entry: LibraryEntry) -> str:
    """Return the name of a file without its suffix."""
    lang = f".{entry.lang}" if entry.lang else ""
    return f"{entry.key}{lang}" + (f"@{entry.version}" if entry.version else "")


def _explain_missing(
    key: str, lang: str | None, version: str | None, entries: tuple[LibraryEntry, ...], languages: tuple[str, ...]
) -> str:
    """Explain why a key has no such file."""
    in_them = [each for each in entries if each.lang in languages]
    if not in_them:
        known = dict.fromkeys(each.lang for each in entries)
        asked = f"in the language {lang!r} nor in the default one" if lang else "in the default language"
        names = _join_names(known)
        return f"there is no prompt {key!r} {asked}{did_you_mean(lang or '', known)}; give lang=, one of {names}"
    known = dict.fromkeys(str(each.version) for each in in_them if each.version)
    there = f"there are {_join_names(known)}" if known else "its file has no version in its name"
    if version is None:
        return f"there is no released version of the prompt {key!r}; {there}: give version="
    return f"there is no version {version!r} of the prompt {key!r}{did_you_mean(version, known)}; {there}"


def _join_names(names: Iterable[str]) -> str:
    shown = [*names]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return (", ".join(shown[:_LISTED]) or "none") + more
