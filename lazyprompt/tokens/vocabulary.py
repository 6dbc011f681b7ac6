"""Loads tiktoken's vocabularies from local files; :mod:`lazyprompt.tokens.download` downloads the files.

tiktoken downloads any missing vocabulary without a time limit, and deletes a damaged file to download it again.
Therefore, this module calls tiktoken's encoding constructors (in ``tiktoken_ext.openai_public``) with a different file
reader. The constructors contain the URLs, hashes, patterns and special tokens. tiktoken itself is not modified.
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
# The maximum size of a vocabulary file, in bytes. OpenAI's largest vocabulary file is 3.6 MB.
MOST_BYTES: Final = 33_554_432
_ENTRY: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+")


class File(NamedTuple):
    """The URL of a vocabulary file and the SHA-256 hash of its content."""

    url: str
    sha256: str


def encoding_for(encoding_or_model: str, bpe_file: str | Path | None = None) -> tiktoken.Encoding:
    """Return a tiktoken encoding without downloading its vocabulary.

    Args:
        encoding_or_model: The name of an encoding, such as ``o200k_base``, or of a model, such as ``gpt-4o``.
        bpe_file: The path of the vocabulary file, if it is not in tiktoken's cache folder.

    Returns:
        The encoding that tiktoken already loaded in this process, or else an encoding loaded from the vocabulary files
        and cached.

    Raises:
        TokenizerError: The name is unknown, the vocabulary is not on this machine, or a file has the wrong content.
    """
    name = encoding_name(encoding_or_model)
    if bpe_file is None and (loaded := _loaded(name)):
        return loaded
    with _LOADING:
        return _encoding(name, *_paths(name, bpe_file))


def check_vocabulary(encoding_or_model: str, bpe_file: str | Path | None = None) -> None:
    """Check that :func:`encoding_for` can load a vocabulary, without actually loading it.

    Args:
        encoding_or_model: The name of an encoding or of a model.
        bpe_file: The path of the vocabulary file, if it is not in tiktoken's cache folder.

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
        The folder, and the name of the environment variable that sets the folder. The folder is None if caching is
        disabled. The variable's name is ``""`` if neither environment variable is set.
    """
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if (folder := os.environ.get(variable)) is not None:
            return Path(folder) if folder else None, variable
    return Path(tempfile.gettempdir(), "data-gym-cache"), ""


def encoding_name(encoding_or_model: str) -> str:
    """Return the name of the encoding for an encoding or model name.

    Args:
        encoding_or_model: The name of an encoding or of a model.

    Returns:
        The name of the encoding.

    Raises:
        TokenizerError: tiktoken supports neither an encoding nor a model with this name.
    """
    # Importing tiktoken takes as long as importing all of lazyprompt.
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
            f"tiktoken {tiktoken.__version__} does not support {encoding_or_model!r}{near}; expected an encoding "
            f"({', '.join(encodings)}) or an OpenAI model; for other models, use a different token counter"
        ) from error


def _is_here(name: str) -> bool:
    """Return True if the cache folder contains a valid copy of the vocabulary."""
    try:
        _contents(name, _paths(name, None))
    except TokenizerError:
        return False
    return True


def _loaded(name: str) -> tiktoken.Encoding | None:
    """Return an encoding that tiktoken already loaded in this process, or None."""
    from tiktoken.registry import ENCODINGS  # noqa: PLC0415

    return ENCODINGS.get(name)


@lru_cache(maxsize=16)
def files_of(name: str) -> tuple[File, ...]:
    """Return the vocabulary files for an encoding, as specified by tiktoken's encoding constructor."""
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
    """Load an encoding from its vocabulary files."""
    import tiktoken  # noqa: PLC0415
    import tiktoken.load  # noqa: PLC0415

    contents = _contents(name, paths)

    def read(url: str, _sha256: str) -> bytes:
        return contents[url]

    scope = _copied(tiktoken.load, {"read_file_cached": read})
    return tiktoken.Encoding(**_recipe(name, {loader: scope[loader] for loader in _LOADERS}))


def _recipe(name: str, loaders: dict[str, Callable[..., dict[bytes, int]]]) -> dict[str, Any]:
    """Return the arguments for ``tiktoken.Encoding``, with the vocabulary read by the given loaders."""
    from tiktoken_ext import openai_public  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types

    constructor = openai_public.ENCODING_CONSTRUCTORS.get(name)
    if constructor is None or not all(hasattr(openai_public, loader) for loader in loaders):
        raise TokenizerError(
            f"the encoding {name!r} is not defined like tiktoken's built-in encodings, so its vocabulary files are not "
            "known; load the encoding first with tiktoken.get_encoding, which may download the files"
        )
    made: dict[str, Any] = _copy(constructor, _copied(openai_public, loaders))()
    return made


def _copied(module: ModuleType, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a module's namespace with some names rebound.

    The namespace also contains copies of the module's functions, which use the namespace's rebound names.
    """
    scope = vars(module) | changes
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and name not in changes:
            scope[name] = _copy(value, scope)
    return scope


def _copy(function: FunctionType, scope: dict[str, Any]) -> FunctionType:
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def cached_at(folder: Path, file: File) -> Path:
    """Return a file's path in tiktoken's cache folder, which is derived from the file's URL."""
    return folder / sha1(file.url.encode(), usedforsecurity=False).hexdigest()


def _paths(name: str, bpe_file: str | Path | None) -> list[Path]:
    """Return the paths of an encoding's vocabulary files."""
    files = files_of(name)
    if bpe_file is not None:
        if len(files) > 1:
            raise TokenizerError(
                f"bpe_file={str(bpe_file)!r} is a single file, but {name} consists of {len(files)} files; put them all "
                "into one folder and set TIKTOKEN_CACHE_DIR to it"
            )
        return [Path(bpe_file)]
    folder, variable = cache_folder()
    paths = [cached_at(folder, file) for file in files] if folder else []
    absent = next(((file, path) for file, path in zip(files, paths, strict=False) if not path.is_file()), None)
    if folder and not absent:
        return paths
    why = f"{variable} is empty, which disables tiktoken's cache"
    if absent:
        where = f" ({variable})" if variable else ", tiktoken's cache folder"
        why = f"{absent[1].name} ({absent[0].url}) is not in {folder}{where}"
    raise TokenizerError(
        f"the vocabulary {name} is not on this machine: {why}. Pass its file with bpe_file=..., set TIKTOKEN_CACHE_DIR "
        f"to a folder that contains it, download it with `lazyprompt tokens --download {name}`, or allow approximate "
        'counts with missing="approximate"'
    )


def _contents(name: str, paths: Iterable[Path]) -> dict[str, bytes]:
    """Read and check an encoding's vocabulary files, and return their contents by URL."""
    contents: dict[str, bytes] = {}
    remedy = f"pass the correct file, or download it with `lazyprompt tokens --download {name}`"
    for file, path in zip(files_of(name), paths, strict=True):
        try:
            contents[file.url] = read_regular(path, MOST_BYTES)
        except OSError as error:
            raise TokenizerError(f"{path} cannot be read ({error.strerror or error}); {remedy}") from error
        if fault := fault_of(file, contents[file.url]):
            raise TokenizerError(f"{path} differs from the file at {file.url}: {fault}; {remedy}")
    return contents


def fault_of(file: File, content: bytes) -> str:
    """Describe how a file's content differs from the expected content; return an empty string if it doesn't."""
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
