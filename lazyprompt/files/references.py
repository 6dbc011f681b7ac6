"""References in the front matter: ``${env:NAME:default}``, ``${file:path}``, ``${params:name}``.

A string that consists of a single reference becomes the referenced value, which can have any type. References inside
longer text are kept as text. References are resolved once, when a file is loaded; values that fill a template later are
not searched for references.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lazyprompt._base.files import names_other_machine, read_regular
from lazyprompt._base.json import checked
from lazyprompt._base.secret import SecretText, variable
from lazyprompt.errors import PromptFileError, PromptFileMissingError, did_you_mean
from lazyprompt.files.yaml_nodes import (
    MAX_BYTES,
    MAX_DEPTH,
    Node,
    SourceText,
    Value,
    YamlReader,
    decode_file,
    plain,
    to_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt.files.library.layers import Trace

_NOWHERE: Final = Node(None, 0, 0)
_CONNECTIONS: Final = (("model", "connection"), ("model", "configuration"))
_TOOL_CONNECTION: Final = ("tools", "*", "connection")
# References other than env, file and params remain text for the program that runs the prompt.
_REFERENCE = re.compile(r"\$\{(env|file|params):([^{}]*)\}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class References:
    """The values and directories used to resolve references.

    Args:
        base: The directory that paths are relative to and must stay in, or None for text without a directory.
        roots: Additional directories that paths may lead to.
        params: The values for ``${params:name}`` references, by name.
        environment: The values for ``${env:NAME}`` references. If None, the process environment is used.
        named: The environment variables allowed outside connection settings. If None, all variables are allowed.
        layers: Directories that are searched for included files as if they were one tree.
        trace: The recorder for the files and variables that are read.
        connects_later: True to keep references to unset variables in connection settings.
    """

    base: Path | None = None
    roots: tuple[Path, ...] = ()
    params: Mapping[str, object] = field(default_factory=dict[str, object])
    environment: Mapping[str, str] | None = None
    named: frozenset[str] | None = None
    layers: tuple[Path, ...] = ()
    trace: Trace | None = field(default=None, compare=False, repr=False)
    connects_later: bool = False

    def resolve(self, fields: dict[str, Node], source: SourceText) -> dict[str, Node]:
        """Resolve all references in the fields of the front matter.

        Args:
            fields: The fields to resolve.
            source: The file that contains the fields.

        Raises:
            PromptFileError: A reference can't be resolved or isn't allowed; the message contains its position.
        """
        resolver = _Resolver(self, source)
        return {name: resolver.resolve(node, (name,)) for name, node in fields.items()}

    def starts(self, directory: Path | None) -> Iterator[Path | None]:
        """Yield the directories to search for an included file, in order.

        Args:
            directory: The directory of the including file.
        """
        place = None if directory is None else Path(os.path.realpath(directory))
        real = (os.path.realpath(each) for each in self.layers)
        holding = next((each for each in real if place is not None and place.is_relative_to(each)), None)
        if holding is None or place is None:
            yield directory
        else:
            yield from (layer / place.relative_to(holding) for layer in self.layers)
        yield from (*self.layers, self.base, *self.roots)

    def path_of(self, given: str, start: Path | None = None) -> Path:
        """Resolve a path that is written in a prompt file.

        Args:
            given: The path as written.
            start: The directory that the path is relative to. The default is the base directory.

        Raises:
            ValueError: The path is outside the allowed directories, or there is no base directory.
        """
        if self.base is None:
            raise ValueError(f"cannot read {given!r}: a prompt from a string has no base directory; pass base_dir=")
        if not given.strip() or "\0" in given:
            raise ValueError(f"{given!r} is not a valid path")
        roots, joined = (self.base, *self.layers, *self.roots), (start or self.base) / given
        # Resolve symbolic links before checking that the path is inside an allowed root directory.
        is_elsewhere = names_other_machine(str(joined), map(os.path.realpath, roots))
        path = Path() if is_elsewhere else Path(os.path.realpath(joined))
        if not any(path.is_relative_to(os.path.realpath(root)) for root in roots):
            raise ValueError(
                f"{given!r} is outside allowed roots: files are read only from the directory of the referring file and "
                "from allowed_roots= (--root)"
            )
        if self.trace is not None:
            self.trace.file(path)
        return path


def is_connection(path: Sequence[str]) -> bool:
    """Return True if a path of field names leads to connection settings; these settings are never sent to a model.

    Args:
        path: The names of the nested front matter fields, outermost first.
    """
    place = tuple(path)
    return place in _CONNECTIONS or (len(place) == len(_TOOL_CONNECTION) and place[0::2] == _TOOL_CONNECTION[0::2])


class _Resolver:
    """A resolver for the references in one file, which enforces limits and reads each file once."""

    def __init__(self, references: References, source: SourceText) -> None:
        self._references = references
        self._source = source
        self._read: dict[tuple[Path, bool], Node] = {}
        self._connects = False
        self._within: list[Path] = []
        self._left = MAX_BYTES
        self._depth = 0

    def resolve(self, node: Node, path: tuple[str, ...] = ()) -> Node:
        """Return a node with all its references resolved.

        Args:
            node: The node to resolve.
            path: The names of the fields that contain the node; empty in a referenced file.
        """
        value = node.value
        connects, self._connects = self._connects, self._connects or is_connection(path)
        try:
            return self._resolve(node, value, path)
        finally:
            self._connects = connects

    def _resolve(self, node: Node, value: Value, path: tuple[str, ...]) -> Node:
        if isinstance(value, list | dict):
            self._depth += 1
            of = self.resolve
            made: Value
            if isinstance(value, list):
                made = [of(item, path and (*path, "*")) for item in value]
            else:
                made = {name: of(item, path and (*path, name)) for name, item in value.items()}
            self._depth -= 1
            return Node(made, node.at, node.key_at, node.flow)
        if not isinstance(value, str) or "${" not in value:
            return node
        try:
            # Positions in the value refer to another file, so replace them with the position of the reference.
            found = plain(node._replace(value=self._text(value)))
            return to_node(found, node._replace(key_at=node.at))._replace(key_at=node.key_at)
        except PromptFileError:
            raise
        except (ValueError, FileNotFoundError) as error:
            kind = PromptFileMissingError if isinstance(error, FileNotFoundError) else PromptFileError
            raise kind(str(self._source.fault_at(node.at, str(error)))) from error

    def _text(self, text: str) -> Value:
        """Resolve a string that is a single reference, such as ``${env:NAME}``; return any other string unchanged."""
        match = _REFERENCE.fullmatch(text)
        return text if match is None else self._found(match)

    def _found(self, match: re.Match[str]) -> Value:
        found = _BY_PROTOCOL[match[1].lower()](self, match[2])
        # Count a file's length for each reference, because many references to a few files could exhaust memory.
        size, depth = _measure(found)
        self._left -= size
        if self._left < 0:
            raise ValueError(f"the referenced values exceed {MAX_BYTES} characters")
        self._check_depth(depth)
        return found

    def _check_depth(self, more: int) -> None:
        if self._depth + more > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels, including the referenced values")

    def of_environment(self, given: str) -> str:
        environment = os.environ if self._references.environment is None else self._references.environment
        name = given.partition(":")[0]
        if self._references.trace is not None:
            self._references.trace.variable(name, os.environ.get(name))
        named = self._references.named
        if named is not None and name not in named and name in environment and not self._connects:
            raise ValueError(
                f"${{env:{name}}} is outside connection settings and would be sent to the model; pass --env {name} if "
                "this file may use it"
            )
        if self._connects and self._references.connects_later and name not in environment and given == name:
            return f"${{env:{given}}}"
        found = variable(given, environment)
        # A default is not secret, because the file contains the default in plain text.
        return SecretText(found, f"${{env:{given}}}") if name in environment else found

    def of_params(self, given: str) -> Value:
        params = self._references.params
        if given not in params:
            known = ", ".join(map(repr, params)) or "none"
            raise ValueError(f"unknown param {given!r}{did_you_mean(given, params)}; params= contains {known}")
        return to_node(checked(params[given], f"params[{given!r}]", PromptFileError), _NOWHERE).value

    def of_file(self, given: str) -> Value:
        path = self._references.path_of(given)
        if path in self._within:
            chain = " → ".join(each.name for each in (*self._within, path))
            raise ValueError(f"circular file references: {chain}")
        key = path, self._connects
        if key not in self._read:
            node, source = _content(path, given)
            outer, self._source = self._source, source
            self._within.append(path)
            self._depth += 1
            self._check_depth(0)
            self._read[key] = self.resolve(node)
            self._depth -= 1
            self._within.pop()
            self._source = outer
        return self._read[key].value


_BY_PROTOCOL: Final[Mapping[str, Callable[[_Resolver, str], Value]]] = {
    "env": _Resolver.of_environment,
    "file": _Resolver.of_file,
    "params": _Resolver.of_params,
}


def file_text(path: Path, given: str) -> str:
    """Read the text of a referenced file.

    Args:
        path: The resolved path.
        given: The path as written, for errors.

    Raises:
        FileNotFoundError: The file doesn't exist.
        ValueError: The file is too large, isn't UTF-8, or can't be read.
    """
    try:
        return read_resolved(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"file {given!r} not found") from None
    except OSError as error:
        raise ValueError(f"file {given!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"file {given!r} is not valid UTF-8 at byte {error.start}") from error


def text_in_place(path: Path, roots: Iterable[str | os.PathLike[str]] = (), base: Path | None = None) -> str:
    """Read the text of an untrusted file, and refuse symbolic links that lead outside the allowed directories.

    Args:
        path: The path of the file.
        roots: Additional directories in which the targets of symbolic links are allowed.
        base: The main directory in which the targets of symbolic links are allowed. The default is the directory that
            contains the file.

    Raises:
        PromptFileError: The file is outside the allowed directories or can't be read.
    """
    places = References(base or path.parent, tuple(map(Path, roots)))
    try:
        data = read_resolved(places.path_of(path.name, path.parent))
    except FileNotFoundError as error:
        raise PromptFileMissingError(f"{path}:1:1: file not found") from error
    except OSError as error:
        raise PromptFileError(f"{path}:1:1: the file cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PromptFileError(f"{path}:1:1: {error}") from error
    return decode_file(data, str(path))


def read_resolved(path: Path) -> bytes:
    """Read the file at a resolved path, without following links created after the path was resolved.

    Args:
        path: The resolved path.

    Raises:
        OSError: The file can't be read, isn't a regular file, or is too large.
    """
    return read_regular(path, MAX_BYTES, path.anchor)


def _content(path: Path, given: str) -> tuple[Node, SourceText]:
    """Parse a file as JSON, YAML or plain text, depending on its suffix."""
    text = file_text(path, given)
    suffix, source = path.suffix.lower(), SourceText(text, path.name)
    if suffix == ".json":
        try:
            return to_node(checked(json.loads(text), f"the content of {given!r}", PromptFileError), _NOWHERE), source
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{given!r} is not valid JSON: {error}") from error
    if suffix in (".yaml", ".yml"):
        return YamlReader(source).read() or _NOWHERE, source
    return Node(text, 0, 0), source


def _measure(value: Value) -> tuple[int, int]:
    """Return a value's size (the number of characters and items) and its nesting depth."""
    if isinstance(value, list | dict):
        items = [_measure(item.value) for item in Node(value, 0, 0).parts]
        return 1 + sum(size for size, _ in items), 1 + max((depth for _, depth in items), default=0)
    return len(value) if isinstance(value, str) else 1, 0
