"""A prompt file as it was read: for all that fills, rewrites or converts it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lazyprompt.files.content_hash import content_hash
from lazyprompt.files.references import References

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.dialects.translation import Note
    from lazyprompt.files.properties import Property
    from lazyprompt.files.reading import Undefined
    from lazyprompt.files.spec import Spec, ToolSpec
    from lazyprompt.files.yaml_nodes import Node


@dataclass(frozen=True, repr=False)
class PromptSource:
    """The text of a prompt file, and what it says.

    Args:
        spec: What its front matter says.
        instructions: Its template.
        dialect: The dialect that it is written in.
        text: The file as it is written.
        path: Where it is; None where it was given as text.
        undefined: Whether a variable that is nowhere is an ``error``, or ``empty``.
        references: Where its references lead.
        seen: The fields of its front matter, with all references looked up.
        notes: What another dialect says otherwise, or could not be carried over; each with its line and column.
    """

    spec: Spec
    instructions: str
    dialect: str
    text: str
    path: Path | None = None
    undefined: Undefined = "error"
    references: References = field(default_factory=References)
    seen: Mapping[str, Node] = field(default_factory=dict[str, "Node"], compare=False)
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str | None:
        """Its name."""
        return self.spec.name

    @property
    def description(self) -> str | None:
        """What it is for."""
        return self.spec.description

    @property
    def metadata(self) -> JsonObject:
        """What else is said of it."""
        return deepcopy(dict(self.spec.metadata))

    @property
    def model(self) -> JsonObject:
        """The model: ``id``, ``provider``, ``apiType``, ``connection``, ``options``; empty where none is named."""
        return deepcopy(dict(self.spec.model))

    @property
    def inputs(self) -> tuple[Property, ...]:
        """What it takes."""
        return self.spec.inputs

    @property
    def outputs(self) -> tuple[Property, ...]:
        """What it gives."""
        return self.spec.outputs

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of its front matter."""
        return self.spec.tools

    @cached_property
    def hash(self) -> str:
        """What it says as SHA-256, in every process the same; its first 12 signs will do for logs.

        Counted are the values of its front matter (but for ``model.connection``), its template and what it includes;
        not where the file is, or when it was written.
        """
        return content_hash(self.dialect, self.to_dict())

    def to_dict(self) -> JsonObject:
        """What the file says, in the canonical form of Prompty v2, with its template as ``instructions``."""
        return {**self.spec.to_dict(), "instructions": self.instructions}

    @property
    def called(self) -> str:
        """The name that errors have for it."""
        return str(self.path or self.name or "<string>")
