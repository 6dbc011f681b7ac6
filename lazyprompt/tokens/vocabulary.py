"""Loads tiktoken's vocabularies from files on this machine; :mod:`lazyprompt.tokens.download` downloads them.

tiktoken itself downloads a missing vocabulary, without a time limit, and deletes a damaged one to download it again.
Therefore its recipes (``tiktoken_ext.openai_public``: URLs, hashes, patterns, special tokens) are executed with another
file reader. tiktoken itself is not modified.
"""

from __future__ import annotations

import os
import re
import tempfile
from functools import lru_cache
from hashlib import sha1, sha256
from pathlib import Path
from threading import Lock
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lazyprompt._base.files import read_regular
from lazyprompt.errors import TokenizerError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import tiktoken

_LOADERS: Final = ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks")
_LOADING: Final = Lock()
# OpenAI's largest vocabulary has 3.6 MB.
MOST_BYTES: Final = 33_554_432
_ENTRY: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+")


class File(NamedTuple):
    """The URL of a vocabulary's file, and the SHA-256 of its bytes."""

    url: str
    sha256: str


def encoding_for(encoding_or_model: str, bpe_file: str | Path | None = None) -> tiktoken.Encoding:
    """Return an encoding of tiktoken, without downloading it.

    Args:
        encoding_or_model: The name of an encoding, such as ``o200k_base``, or of a model, such as ``gpt-4o``.
        bpe_file: The vocabulary's file, if it is not in tiktoken's cache folder.

    Returns:
        The encoding that tiktoken already loaded in this process, or one read from its file, which is cached.

    Raises:
        TokenizerError: The name is unknown, the vocabulary is not on this machine, or a file has the wrong content.
    """
    name = encoding_name(encoding_or_model)
    if bpe_file is None and (loaded := _loaded(name)):
        return loaded
    with _LOADING:
        return _encoding(name, *_paths(name, bpe_file))


def check_vocabulary(encoding_or_model: str, bpe_file: str | Path | None = None) -> None:
    """Check that :func:`encoding_for` can load a vocabulary, without loading it.

    Args:
        encoding_or_model: The name of an encoding or of a model.
        bpe_file: The vocabulary's file, if it is not in tiktoken's cache folder.

    Raises:
        TokenizerError: See :func:`encoding_for`.
    """
    name = encoding_name(encoding_or_model)
    if bpe_file is None and _loaded(name):
        return
    _contents(name, _paths(name, bpe_file))


def vocabularies_here() -> list[str]:
    """Return the names of tiktoken's vocabularies on this machine."""
    import tiktoken  # noqa: PLC0415 - as in encoding_name

    return [name for name in tiktoken.list_encoding_names() if _is_here(name)]


def cache_folder() -> tuple[Path | None, str]:
    """Return tiktoken's cache folder.

    Returns:
        The folder, or None if caching is disabled; and the environment variable that sets it, or ``""``.
    """
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if (folder := os.environ.get(variable)) is not None:
            return Path(folder) if folder else None, variable
    return Path(tempfile.gettempdir(), "data-gym-cache"), ""


def encoding_name(encoding_or_model: str) -> str:
    """Return the name of an encoding, or of a model's encoding.

    Args:
        encoding_or_model: The name of an encoding or of a model.

    Returns:
        The name of the encoding.

    Raises:
        TokenizerError: The name is unknown to tiktoken.
    """
    # Importing tiktoken takes as long as importing this whole package.
    import tiktoken  # noqa: PLC0415
    from tiktoken.model import MODEL_TO_ENCODING  # noqa: PLC0415

    encodings = tiktoken.list_encoding_names()
    if encoding_or_model in encodings:
        return encoding_or_model
    try:
        return tiktoken.encoding_name_for_model(encoding_or_model)
    except (KeyError, AttributeError) as error:
        near = did_you_mean(str(encoding_or_model).lower(), [*encodings, *MODEL_TO_ENCODING])
        raise TokenizerError(
            f"tiktoken {tiktoken.__version__} knows no encoding and no model {encoding_or_model!r}{near}; give an "
            f"encoding ({', '.join(encodings)}) or a model of OpenAI, or use another token counter"
        ) from error


def _is_here(name: str) -> bool:
    """Return True if the cache folder contains a vocabulary."""
    try:
        _contents(name, _paths(name, None))
    except TokenizerError:
        return False
    return True


def _loaded(name: str) -> tiktoken.Encoding | None:
    """Return an encoding that tiktoken already loaded."""
    from tiktoken.registry import ENCODINGS  # noqa: PLC0415

    return ENCODINGS.get(name)


@lru_cache(maxsize=16)
def files_of(name: str) -> tuple[File, ...]:
    """Return the files of an encoding, from tiktoken's recipe."""
    found: list[File] = []

    def bpe(url: str, expected_hash: str = "") -> dict[bytes, int]:
        found.append(File(url, expected_hash))
        return {}

    def data_gym(**files: str) -> dict[bytes, int]:
        found.extend(File(files[f"{kind}_file"], files[f"{kind}_hash"]) for kind in ("vocab_bpe", "encoder_json"))
        return {}

    _recipe(name, dict(zip(_LOADERS, (bpe, data_gym), strict=True)))
    return tuple(found)


@lru_cache(maxsize=16)
def _encoding(name: str, *paths: Path) -> tiktoken.Encoding:
    """Read an encoding from its files."""
    import tiktoken  # noqa: PLC0415
    import tiktoken.load  # noqa: PLC0415

    contents = _contents(name, paths)

    def read(url: str, _sha256: str) -> bytes:
        return contents[url]

    scope = _copied(tiktoken.load, {"read_file_cached": read})
    return tiktoken.Encoding(**_recipe(name, {loader: scope[loader] for loader in _LOADERS}))


def _recipe(name: str, loaders: dict[str, Callable[..., dict[bytes, int]]]) -> dict[str, Any]:
    """Return the arguments of an encoding, with the vocabulary read by these loaders."""
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types

    constructor = openai_public.ENCODING_CONSTRUCTORS.get(name)
    if constructor is None or not all(hasattr(openai_public, loader) for loader in loaders):
        raise TokenizerError(
            f"the encoding {name!r} is not made the way that tiktoken's own are, so its vocabulary cannot be found "
            "without tiktoken; load it first with tiktoken.get_encoding, which may download it"
        )
    made: dict[str, Any] = _copy(constructor, _copied(openai_public, loaders))()
    return made


def _copied(module: ModuleType, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a module's namespace with changes, and with copies of its functions that use this namespace."""
    scope = vars(module) | changes
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and name not in changes:
            scope[name] = _copy(value, scope)
    return scope


def _copy(function: FunctionType, scope: dict[str, Any]) -> FunctionType:
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def cached_at(folder: Path, file: File) -> Path:
    """Return the path of a file in tiktoken's cache folder, which is derived from its URL."""
    return folder / sha1(file.url.encode(), usedforsecurity=False).hexdigest()


def _paths(name: str, bpe_file: str | Path | None) -> list[Path]:
    """Return the paths of an encoding's files."""
    files = files_of(name)
    if bpe_file is not None:
        if len(files) > 1:
            raise TokenizerError(
                f"bpe_file={str(bpe_file)!r} is one file, but {name} has {len(files)}; put them into the folder that "
                "TIKTOKEN_CACHE_DIR names"
            )
        return [Path(bpe_file)]
    folder, variable = cache_folder()
    paths = [cached_at(folder, file) for file in files] if folder else []
    absent = next(((file, path) for file, path in zip(files, paths, strict=False) if not path.is_file()), None)
    if folder and not absent:
        return paths
    why = f"{variable} is empty, which turns tiktoken's cache off"
    if absent:
        where = f" ({variable})" if variable else ", tiktoken's cache folder"
        why = f"{absent[1].name} ({absent[0].url}) is not in {folder}{where}"
    raise TokenizerError(
        f"the vocabulary {name} is not on this machine: {why}. Give its file with bpe_file=..., set TIKTOKEN_CACHE_DIR "
        f"to a folder that has it, download it with `lazyprompt tokens --download {name}`, or count about with "
        'missing="approximate"'
    )


def _contents(name: str, paths: Iterable[Path]) -> dict[str, bytes]:
    """Read the files of an encoding and check their content; the keys are their URLs."""
    contents: dict[str, bytes] = {}
    remedy = f"give the right file, or download it with `lazyprompt tokens --download {name}`"
    for file, path in zip(files_of(name), paths, strict=True):
        try:
            contents[file.url] = read_regular(path, MOST_BYTES)
        except OSError as error:
            raise TokenizerError(f"{path} cannot be read ({error.strerror or error}); {remedy}") from error
        if fault := fault_of(file, contents[file.url]):
            raise TokenizerError(f"{path} is not the file of {file.url}: {fault}; {remedy}")
    return contents


def fault_of(file: File, content: bytes) -> str:
    """Describe the fault in a file's content; ``""`` if there is none."""
    found = sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    fault = f"its {len(content)} bytes have the SHA-256 {found[:12]}…, not {file.sha256[:12]}…"
    if not file.url.endswith(".tiktoken"):
        return fault
    lines = content.splitlines()
    broken = next((at for at, line in enumerate(lines) if line and not _ENTRY.fullmatch(line)), None)
    if broken is None:
        return f"{fault}, though its {len(lines)} lines are tokens with their ranks"
    return f"{fault}, and line {broken + 1} is not a token with its rank ({lines[broken][:60]!r})"
