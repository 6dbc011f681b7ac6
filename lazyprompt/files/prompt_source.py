"""A prompt file as it was read, for what rewrites or converts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.dialects.translation import Note
    from lazyprompt.files.references import References
    from lazyprompt.files.yaml_nodes import Node


class PromptSource(Protocol):
    """A prompt file, as :class:`lazyprompt.Prompty` is one; its docstring describes the attributes."""

    @property
    def name(self) -> str | None:
        """The name of the prompt."""
        ...

    @property
    def text(self) -> str:
        """The file as it is written."""
        ...

    @property
    def path(self) -> Path | None:
        """The path; None for text."""
        ...

    @property
    def dialect(self) -> str:
        """The dialect."""
        ...

    @property
    def references(self) -> References:
        """The places that references lead to."""
        ...

    @property
    def seen(self) -> Mapping[str, Node]:
        """The fields, with references looked up."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes of reading."""
        ...

    def to_dict(self) -> JsonObject:
        """Return the file in the canonical form of Prompty v2."""
        ...


def name_of(file: PromptSource) -> str:
    """Return the name that errors have for a file."""
    return str(file.path or file.name or "<string>")
