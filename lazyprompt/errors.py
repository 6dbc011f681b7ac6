"""The errors and warnings of lazyprompt.

Every error is a :class:`LazyPromptError`, and also the built-in exception that Python code would catch::

    LazyPromptError (Exception)
    ├── SlotError (KeyError)            a slot without a value, a value without a slot, a value that is not text
    ├── HistoryError (ValueError)       a history that is not a list of pairs, messages or Msg
    ├── ToolsError (ValueError)         a tool that cannot be described, tools given twice
    ├── FormatError (ValueError)        content that the requested output format cannot contain
    ├── MediaError (ValueError)         a picture, sound or file that cannot be read, or is not allowed
    ├── BudgetError (ValueError)        even the protected messages do not fit
    ├── BatchError (ValueError)         rows that cannot be read, or an output format that cannot be written
    ├── TemplateError (ValueError)      an invalid template, instruction or set of markers
    ├── PromptFileError (ValueError)    a prompt file that cannot be used; says file:line:column
    │   └── PromptFileMissingError (FileNotFoundError)  a missing prompt file, or a missing file it refers to
    ├── SafetyError (ValueError)        a control sequence in untrusted text, where ``safety="raise"`` refuses it
    ├── TokenizerError (LookupError)    a vocabulary or tokenizer that is missing
    ├── ModuleError (RuntimeError)      a model adapter that could not get an answer
    │   └── EngineError (RuntimeError)      a local engine that did not start, died or refused
    └── MissingExtraError (ImportError) an optional dependency that is not installed

Each message contains what was given, what was expected, and where.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class LazyPromptError(Exception):
    """The base class of every error that this package raises."""

    def __str__(self) -> str:
        """The message itself (``KeyError`` would print its repr)."""
        return " ".join(str(arg) for arg in self.args)


class SlotError(LazyPromptError, KeyError):
    """A slot without a value, a value without a slot, or a value that cannot become text."""


class HistoryError(LazyPromptError, ValueError):
    """A history, or one of its messages, has no accepted form."""


class ToolsError(LazyPromptError, ValueError):
    """A tool cannot be described, or tools were passed where none are allowed."""


class FormatError(LazyPromptError, ValueError):
    """The requested output format cannot contain the content, or is unknown."""


class MediaError(LazyPromptError, ValueError):
    """A picture, sound, video or file cannot be read, or is not allowed."""


class BudgetError(LazyPromptError, ValueError):
    """Even the protected part of a prompt does not fit its token budget."""


class BatchError(LazyPromptError, ValueError):
    """A row cannot be read, or cannot be written in the requested form; the message names the row.

    Args:
        message: What happened, and what to do.
        setting: The wrong setting, such as ``columns``; ``""`` if there is no single one.
    """

    def __init__(self, message: str, *, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class TemplateError(LazyPromptError, ValueError):
    """A template, an instruction or a set of markers is invalid."""


class PromptFileError(LazyPromptError, ValueError):
    """A prompt file cannot be used; the message names file, line and column."""


class PromptFileMissingError(PromptFileError, FileNotFoundError):
    """A prompt file, or a file that it refers to, does not exist."""


class SafetyError(LazyPromptError, ValueError):
    """Untrusted text contains a control sequence, and ``safety="raise"`` refuses it."""


class TokenizerError(LazyPromptError, LookupError):
    """A vocabulary or tokenizer is missing."""


class ModuleError(LazyPromptError, RuntimeError):
    """A model adapter got no answer.

    Args:
        message: What happened, and what to do.
        kind: The kind of fault: a :data:`lazyprompt.modules.clients._faults.FaultKind`, ``refusal``, ``empty``,
            ``invalid``, or ``rounds`` if the model calls tools without an end; ``""`` if nothing was sent.
        status: The HTTP status, if the server answered.
        partial: The part of the answer that arrived, a :class:`lazyprompt.Reply`, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        status: int | None = None,
        partial: Any = None,  # noqa: ANN401 - a Reply, which a higher layer defines
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.partial = partial

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class EngineError(ModuleError):
    """A local engine did not start, died or refused."""


class MissingExtraError(LazyPromptError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


class LazyPromptWarning(UserWarning):
    """The base class of every warning: a result is less exact or less complete than requested."""


class ApproximateCountWarning(LazyPromptWarning):
    """Tokens are counted approximately, because the model's vocabulary is missing."""


class ToolFormWarning(LazyPromptWarning):
    """The tools of a prompt do not have the form that the model was trained on; the message has the reason."""


class SummaryWarning(LazyPromptWarning):
    """The oldest messages are left out, because there is no summary of them."""


# A typing error leaves two names of two characters, as most Chinese names have, only half alike.
_SHORT = 2


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name as the end of a message.

    Args:
        name: The name that was given.
        known: The names that exist.

    Returns:
        ``" (did you mean 'x'?)"``, or an empty string if no name is near.
    """
    names = [*known]
    near = nearest(name, names) or next((each for each in names if _differ_in_one_of_two(name, each)), None)
    return f" (did you mean {near!r}?)" if near else ""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to a given one, ignoring case and full-width forms.

    Args:
        name: The name that was given.
        known: The names that exist.
        cutoff: The minimum similarity, from 0 to 1, as in :func:`difflib.get_close_matches`.

    Returns:
        The name, or None if no name is similar enough.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    folded = {_fold(each): each for each in known}
    return next((folded[near] for near in get_close_matches(_fold(name), folded, n=1, cutoff=cutoff)), None)


def _fold(name: str) -> str:
    from unicodedata import normalize  # noqa: PLC0415 - only errors need it

    return normalize("NFKC", name).casefold()


def _differ_in_one_of_two(name: str, known: str) -> bool:
    """Return True for two names of two characters that differ in one of them, or in their order."""
    if not len(name) == len(known) == _SHORT:
        return False
    return name == known[::-1] or any(a == b for a, b in zip(name, known, strict=True))


def import_extra(module: str, package: str, extra: str = "") -> Any:  # noqa: ANN401 - optional packages have no types where they are missing
    """Import a module of an optional package.

    Args:
        module: The module.
        package: The package to install, named in the error.
        extra: The extra of lazyprompt that has it, if its name is another.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_extra(package, extra or package) from error


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Return the error for a package that is not installed.

    Args:
        package: The package that was to be imported.
        extra: The extra of lazyprompt that has it.

    Returns:
        The error, to raise from the ``ImportError``.
    """
    return MissingExtraError(f"the package {package} is not installed; install it with: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra the way lazyprompt was installed.

    Args:
        extra: The extra.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - only errors need it
    from json import loads  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    origin: Mapping[str, Any] = {}
    with suppress(PackageNotFoundError, ValueError):
        origin = loads(distribution("lazyprompt").read_text("direct_url.json") or "{}")
    return f"pip install {requirement_of(extra, Path(__file__).parents[1], origin)}"


def requirement_of(extra: str, root: Path, origin: Mapping[str, Any]) -> str:
    """Return an extra of lazyprompt as pip installs it.

    Args:
        extra: The extra.
        root: The directory of the package's own directory: a checkout if the installation is editable.
        origin: The origin of the installation, as pip records it in ``direct_url.json`` (PEP 610); empty for an index.
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
