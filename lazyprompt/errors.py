"""The exception and warning classes of lazyprompt.

Every error inherits from :class:`LazyPromptError` and from the matching built-in exception::

    LazyPromptError (Exception)
    ├── SlotError (KeyError)            a slot without a value, a value without a slot, or a value that is not text
    ├── HistoryError (ValueError)       a history that is not a list of pairs, messages or Msg objects
    ├── ToolsError (ValueError)         an invalid tool, or tools passed twice
    ├── FormatError (ValueError)        content that the requested output format does not support
    ├── MediaError (ValueError)         an image, sound, video or file that cannot be read or is not allowed
    ├── BudgetError (ValueError)        protected messages that exceed the limit on their own
    ├── BatchError (ValueError)         rows that cannot be read, or written in the output format
    ├── TemplateError (ValueError)      an invalid template, instruction or set of markers
    ├── PromptFileError (ValueError)    an invalid prompt file; the message contains file:line:column
    │   └── PromptFileMissingError (FileNotFoundError)  a missing prompt file, or a missing file it refers to
    ├── SafetyError (ValueError)        a control sequence in untrusted text, if ``safety="raise"``
    ├── TokenizerError (LookupError)    a missing vocabulary or tokenizer
    ├── ModuleError (RuntimeError)      a model adapter that received no response
    │   └── EngineError (RuntimeError)      a local engine that failed to start, crashed or refused a request
    └── MissingExtraError (ImportError) an optional dependency that is not installed

Each error message describes the invalid value, the expected value and the location.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class LazyPromptError(Exception):
    """The base class of every error that this package raises."""

    def __str__(self) -> str:
        """Return the plain message; ``KeyError`` would return its repr."""
        return " ".join(str(arg) for arg in self.args)


class SlotError(LazyPromptError, KeyError):
    """Raised for a slot without a value, a value without a slot, or a value that cannot be converted to text."""


class HistoryError(LazyPromptError, ValueError):
    """Raised if a history, or one of its messages, has an unsupported format."""


class ToolsError(LazyPromptError, ValueError):
    """Raised for an invalid tool, or if tools were passed where none are allowed."""


class FormatError(LazyPromptError, ValueError):
    """Raised if the requested output format is unknown or does not support the content."""


class MediaError(LazyPromptError, ValueError):
    """Raised if an image, sound, video or file cannot be read or is not allowed."""


class BudgetError(LazyPromptError, ValueError):
    """Raised if the protected parts of a prompt alone exceed the token budget."""


class BatchError(LazyPromptError, ValueError):
    """Raised if a row cannot be read or written in the requested format; the message contains the row number.

    Args:
        message: The error message, including the remedy.
        setting: The name of the invalid setting, such as ``columns``; ``""`` if no single setting caused the error.
    """

    def __init__(self, message: str, *, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class TemplateError(LazyPromptError, ValueError):
    """Raised if a template, an instruction or a set of markers is invalid."""


class PromptFileError(LazyPromptError, ValueError):
    """Raised if a prompt file is invalid; the message contains the file, line and column."""


class PromptFileMissingError(PromptFileError, FileNotFoundError):
    """Raised if a prompt file, or a file that it refers to, does not exist."""


class SafetyError(LazyPromptError, ValueError):
    """Raised if untrusted text contains a control sequence and the safety policy is ``raise``."""


class TokenizerError(LazyPromptError, LookupError):
    """Raised if a vocabulary or tokenizer is missing."""


class ModuleError(LazyPromptError, RuntimeError):
    """Raised if a model adapter received no response.

    Args:
        message: The error message, including the remedy.
        kind: The kind of failure: a :data:`lazyprompt.modules.clients._faults.FaultKind`, ``refusal``, ``empty``,
            ``invalid``, or ``rounds`` if the model calls tools endlessly; ``""`` if no request was sent.
        status: The HTTP status code; None if the server sent no response.
        partial: The part of the response that arrived, as a :class:`lazyprompt.Reply`; None if no part arrived.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        status: int | None = None,
        partial: Any = None,  # noqa: ANN401 - a Reply, defined in a higher layer
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.partial = partial

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class EngineError(ModuleError):
    """Raised if a local engine failed to start, crashed or refused a request."""


class MissingExtraError(LazyPromptError, ImportError):
    """Raised if an optional dependency is not installed; the message contains the name of the extra to install."""


class LazyPromptWarning(UserWarning):
    """The base class of all warnings; each reports that a result is less exact or complete than requested."""


class ApproximateCountWarning(LazyPromptWarning):
    """Issued if tokens are counted approximately because the model's vocabulary is missing."""


class ToolFormWarning(LazyPromptWarning):
    """Issued if a prompt's tools are not in the model family's own format; the message contains the reason.

    Markers without a family never cause this warning.
    """


class SummaryWarning(LazyPromptWarning):
    """Issued if the oldest messages are dropped because they could not be summarized."""


# For a typo in a name of this length, which is common in Chinese, difflib finds no match.
_SHORT = 2


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a suffix for an error message that suggests the most similar known name.

    Args:
        name: The unknown name; nothing is similar to a value that is not text.
        known: The valid names, to compare with ``name``.

    Returns:
        ``" (did you mean 'x'?)"``, or an empty string if no known name is similar.
    """
    if not isinstance(name, str):
        return ""
    names = [*known]
    near = nearest(name, names) or next((each for each in names if _differ_in_one_of_two(name, each)), None)
    return f" (did you mean {near!r}?)" if near else ""


def check_names(names: Iterable[str], known: Sequence[str], kind: str, error: type[LazyPromptError]) -> None:
    """Check that all names are known.

    Args:
        names: The names to check.
        known: The valid names, which the error message lists.
        kind: What a name stands for, such as ``marker``.
        error: The error to raise for the first unknown name.
    """
    for name in names:
        if name not in known:
            raise error(f"no {kind} {name!r}{did_you_mean(name, known)}; available {kind}s: {', '.join(known)}")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to a given name, ignoring differences in case and character width.

    Args:
        name: The unknown name.
        known: The valid names, to compare with ``name``.
        cutoff: The minimum similarity, from 0 to 1, as in :func:`difflib.get_close_matches`.

    Returns:
        The valid name that is most similar to ``name``, or None if no valid name is similar enough.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    folded = {_fold(each): each for each in known}
    return next((folded[near] for near in get_close_matches(_fold(name), folded, n=1, cutoff=cutoff)), None)


def _fold(name: str) -> str:
    from unicodedata import normalize  # noqa: PLC0415 - only errors need it

    return normalize("NFKC", name).casefold()


def _differ_in_one_of_two(name: str, known: str) -> bool:
    """Return True if two two-character names differ in one character or in the order of their characters."""
    if not len(name) == len(known) == _SHORT:
        return False
    return name == known[::-1] or any(a == b for a, b in zip(name, known, strict=True))


def import_extra(module: str, package: str, extra: str = "") -> Any:  # noqa: ANN401 - any module
    """Import a module from an optional package.

    Args:
        module: The full name of the module.
        package: The package to install, for the error message.
        extra: The lazyprompt extra that installs the package; by default, the package's name.

    Raises:
        MissingExtraError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_extra(package, extra or package) from error


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Return the error for a package that is not installed.

    Args:
        package: The missing package.
        extra: The lazyprompt extra that installs the package.

    Returns:
        The error, to raise from the ``ImportError``.
    """
    return MissingExtraError(f"the {package} package is not installed; install it with: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra from the same source as lazyprompt itself."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - only errors need it
    from json import loads  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    origin: Mapping[str, Any] = {}
    with suppress(PackageNotFoundError, ValueError):
        origin = loads(distribution("lazyprompt").read_text("direct_url.json") or "{}")
    return f"pip install {requirement_of(extra, Path(__file__).parents[1], origin)}"


def requirement_of(extra: str, root: Path, origin: Mapping[str, Any]) -> str:
    """Return the pip requirement for an extra of lazyprompt.

    Args:
        extra: The name of the extra.
        root: The parent of the package directory; a source checkout if the installation is editable.
        origin: The contents of pip's ``direct_url.json`` (PEP 610); empty if installed from a package index.
    """
    from pathlib import Path  # noqa: PLC0415 - only errors need it
    from urllib.parse import urlsplit  # noqa: PLC0415 - as above
    from urllib.request import url2pathname  # noqa: PLC0415 - as above

    def in_directory(path: Path) -> str:
        return f'"{"." if path == Path.cwd() else path}[{extra}]"'

    url = str(origin.get("url", ""))
    if (root / "pyproject.toml").is_file():
        return f"-e {in_directory(root)}"
    if "dir_info" in origin and (path := Path(url2pathname(urlsplit(url).path))).is_dir():
        return in_directory(path)
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}"
    return f'"lazyprompt[{extra}]{f" @ {url}" if url and "dir_info" not in origin else ""}"'
