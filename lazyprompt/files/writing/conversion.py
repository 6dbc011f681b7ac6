"""What all conversions of prompt files share: a file as Prompty v2 says it, with its references as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.spec import read_spec
from lazyprompt.files.writing.in_fields import in_fields
from lazyprompt.files.writing.original import OriginalText
from lazyprompt.files.yaml_nodes import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.files.dialects.translation import Translated
    from lazyprompt.files.spec import Spec
    from lazyprompt.files.yaml_nodes import Node


class Converted(NamedTuple):
    """A prompt in another form.

    Attributes:
        text: The text.
        notes: What that form cannot say, or says otherwise.
    """

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Original(OriginalText):
    """A prompt file that is converted, as Prompty v2 says it."""

    @cached_property
    def as_v2(self) -> Translated:
        """The same as Prompty v2 says all of it.

        Raises:
            FormatError: It has turns of tools, which Prompty v2 has not.
        """
        return in_fields(self)

    @cached_property
    def spec(self) -> Spec:
        """What its front matter says, with references as text; but no connection, which Prompty alone has.

        Raises:
            FormatError: A reference stands for what is no text.
        """
        fields = dict(self.as_v2.fields)
        model = fields.get("model")
        if model is not None and isinstance(model.value, dict) and "connection" in model.value:
            fields["model"] = model._replace(value={**model.value, "connection": model._replace(value={})})
        try:
            return read_spec(fields, self.source)
        except PromptFileError as error:
            raise FormatError(
                f"{error}\nTo convert this file, write out what is referred to there: that form has no references"
            ) from error


def told(fields: Mapping[str, Node]) -> dict[str, Json]:
    """Fields as values."""
    return {name: cast("Json", plain(node)) for name, node in fields.items()}
