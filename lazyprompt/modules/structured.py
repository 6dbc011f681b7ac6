"""Answers of a form that was asked for: a pydantic model, or a JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from lazyprompt._json import JsonObject

ResponseFormat: TypeAlias = "type[BaseModel] | Mapping[str, Any]"

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)
_BEGIN = re.compile(r"[{\[]")


class Structure(NamedTuple):
    """The form that an answer is to have.

    Attributes:
        name: Its name.
        schema: Its JSON schema.
        model: The pydantic model that it is of; None where it was given as a schema.
    """

    name: str
    schema: JsonObject
    model: type[BaseModel] | None

    @classmethod
    def of(cls, response_format: ResponseFormat) -> Structure:
        """The form.

        Args:
            response_format: A pydantic model; or a JSON schema, by itself or as OpenAI's ``response_format`` holds it.

        Raises:
            FormatError: It is neither.
        """
        from pydantic import BaseModel  # noqa: PLC0415 - slow, and only such answers need it

        given = cast("object", response_format)
        if isinstance(given, type) and issubclass(given, BaseModel):
            return cls(given.__name__, given.model_json_schema(), given)
        if not isinstance(given, Mapping):
            raise FormatError(
                f"response_format is a pydantic model or a JSON schema as a dict, not {response_format!r}"
            )
        schema: Any = dict(cast("Mapping[str, Any]", given))
        named = schema.get("json_schema")
        if isinstance(named, Mapping):
            return cls(str(cast("Mapping[str, Any]", named).get("name", "answer")), dict(named["schema"]), None)
        if schema.get("type") == "json_object":
            return cls("answer", {"type": "object"}, None)
        return cls(str(schema.get("title", "answer")), schema, None)

    @property
    def instruction(self) -> str:
        """What a model is told that no provider holds to the form."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Answer with one JSON value and nothing else: no words before or behind it. Its JSON schema:\n{schema}"

    def read(self, text: str) -> object:
        """The object in an answer.

        Args:
            text: The answer: JSON, alone, in a fence, or with words around it.

        Returns:
            An object of the model; or what the JSON says, which is not held against a schema here.

        Raises:
            ValueError: There is no JSON, or it is none of the model.
        """
        value = _json_in(text)
        return value if self.model is None else self.model.model_validate(value)


def _json_in(text: str) -> object:
    """The JSON value in an answer."""
    fenced = _FENCED.search(text)
    found = (fenced[1] if fenced else text).strip()
    try:
        return cast("object", json.loads(found))
    except ValueError:
        begin = _BEGIN.search(found)
        if begin is None:
            raise
        return cast("object", json.JSONDecoder().raw_decode(found, begin.start())[0])
