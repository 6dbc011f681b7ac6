"""A prompt file that is converted: its text, with references as they are written, and places in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.dialects.table import dialect_named
from lazyprompt.files.dialects.translation import Reading
from lazyprompt.files.front_matter import split
from lazyprompt.files.prompt_source import name_of
from lazyprompt.files.writing.rewriting import put_together
from lazyprompt.files.writing.yaml_edit import Field
from lazyprompt.files.yaml_nodes import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.files.dialects.translation import Translated
    from lazyprompt.files.front_matter import Parts
    from lazyprompt.files.prompt_source import PromptSource


@dataclass(frozen=True)
class OriginalText:
    """The text of a prompt file that is converted.

    Args:
        prompty: The file.
    """

    prompty: PromptSource

    @cached_property
    def source(self) -> Source:
        """Its text."""
        return Source(self.prompty.text, name_of(self.prompty))

    @cached_property
    def parts(self) -> Parts:
        """Its front matter, with no reference looked up, and its body."""
        return split(self.source)

    @cached_property
    def in_v2(self) -> Translated:
        """The same with the fields of Prompty v2; its text is that of its dialect.

        Raises:
            FormatError: A reference stands where its dialect is told by what it leads to.
        """
        # What is read here is written: a file that it leads to must bring nothing from the environment.
        references = replace(self.prompty.references, environment={})
        reading = Reading(self.source, dict(self.parts.fields or {}), self.parts.body, references)
        try:
            return dialect_named(self.prompty.dialect).translate(reading)
        except PromptFileError as error:
            raise FormatError(
                f"{error}\nTo convert this file, write out what is referred to there: references are not looked up, so "
                "that no secret is written"
            ) from error

    def place(self, body: str, at: int) -> tuple[int, int]:
        """The line and the column of a place in its body, or in one that has the same lines."""
        line = self.source.place(self.parts.body_at)[0] + body.count("\n", 0, at)
        return line, at - body.rfind("\n", 0, at)

    def fault(self, body: str, at: int, what: str) -> FormatError:
        """The error for a place, as :meth:`place` has it."""
        line, column = self.place(body, at)
        return FormatError(f"{self.source.name}:{line}:{column}: {what}")

    def offset(self, body: str, at: int) -> int:
        """Where a place of its body is in the file, whose lines may end otherwise."""
        return self.parts.body_at + at + (body.count("\n", 0, at) if "\r\n" in self.source.text else 0)

    def rewritten(self, fields: Mapping[str, Json], body: str) -> str:
        """The file with other fields and another body: what stays the same is as it is written.

        Args:
            fields: All that the fields are to be.
            body: The body.
        """
        raw = self.parts.fields or {}
        gone: dict[str, Json] = {name: None for name in raw if name not in fields}
        own = {name: Field(node, node) for name, node in raw.items()}
        if body == self.parts.body:
            body = self.source.text[self.parts.body_at :]
        elif "\r\n" in self.source.text:
            body = body.replace("\n", "\r\n")
        return put_together(self.source, self.parts, own, {**fields, **gone}, body)
