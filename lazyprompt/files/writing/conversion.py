"""What all conversions of prompt files share: a file as Prompty v2 says it, with its references as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.dialects.table import dialect_named
from lazyprompt.files.dialects.translation import Reading
from lazyprompt.files.front_matter import split
from lazyprompt.files.spec import read_spec
from lazyprompt.files.writing.rewriting import put_together
from lazyprompt.files.writing.yaml_edit import Field
from lazyprompt.files.yaml_nodes import Source, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._json import Json
    from lazyprompt.files.dialects.translation import Translated
    from lazyprompt.files.front_matter import Parts
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.spec import Spec


class Converted(NamedTuple):
    """A prompt in another form.

    Attributes:
        text: The text.
        notes: What that form cannot say, or says otherwise.
    """

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Original:
    """A prompt file that is to be converted.

    Args:
        prompty: The file.
    """

    prompty: Prompty

    @cached_property
    def source(self) -> Source:
        """Its text."""
        return Source(self.prompty.text, str(self.prompty.path or self.prompty.name or "<string>"))

    @cached_property
    def parts(self) -> Parts:
        """Its front matter, with no reference looked up, and its body."""
        return split(self.source)

    @cached_property
    def in_v2(self) -> Translated:
        """The same as Prompty v2 has it.

        Raises:
            FormatError: A reference stands where its dialect is told by what it leads to.
        """
        reading = Reading(self.source, dict(self.parts.fields or {}), self.parts.body, self.prompty.references)
        try:
            return dialect_named(self.prompty.dialect).translate(reading)
        except PromptFileError as error:
            raise FormatError(
                f"{error}\nTo convert this file, write out what is referred to there: references are not looked up, so "
                "that no secret is written"
            ) from error

    @cached_property
    def spec(self) -> Spec:
        """What its front matter says, with references as text.

        Raises:
            FormatError: A reference stands for what is no text.
        """
        try:
            return read_spec(self.in_v2.fields, self.source)
        except PromptFileError as error:
            raise FormatError(
                f"{error}\nTo convert this file, write out what is referred to there: that form has no references"
            ) from error

    @property
    def notes(self) -> list[str]:
        """What was read otherwise than it is written."""
        return [str(note) for note in self.in_v2.notes]

    def place(self, body: str, at: int) -> str:
        """A place in its body, or in one of the same lines, as errors say it: file, line and column."""
        line = self.source.place(self.parts.body_at)[0] + body.count("\n", 0, at)
        return f"{self.source.name}:{line}:{at - body.rfind(chr(10), 0, at)}"

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
        return put_together(self.source, self.parts, own, {**fields, **gone}, body)

    def fields(self) -> dict[str, Json]:
        """Its fields, as Prompty v2 calls them."""
        return {name: cast("Json", plain(node)) for name, node in self.in_v2.fields.items()}
