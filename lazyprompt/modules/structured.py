"""Answers of a form that was asked for: a pydantic model, or a JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lazyprompt._base.json import checked_object
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from lazyprompt._base.json import JsonObject

ResponseFormat: TypeAlias = "type[BaseModel] | Mapping[str, Any]"

_FENCED = re.compile(r"```(?:json)?[^\S\n]*+\n(.*?)```", re.DOTALL | re.IGNORECASE)
# What the JSON of an answer begins with, by the type that its schema asks for.
_OPENS = {"object": "{", "array": "["}


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
        fields = checked_object(cast("Mapping[str, object]", given), "response_format", FormatError)
        if fields.get("type") == "json_object":
            return cls("answer", {"type": "object"}, None)
        if "json_schema" not in fields:
            return cls(str(fields.get("title", "answer")), fields, None)
        named = fields["json_schema"]
        schema = named.get("schema") if isinstance(named, dict) else None
        if not isinstance(named, dict) or not isinstance(schema, dict):
            raise FormatError('the "json_schema" of a response_format is a dict with the schema as its "schema"')
        return cls(str(named.get("name", "answer")), schema, None)

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
        kind = self.schema.get("type")
        found = _json_in(text, _OPENS.get(kind, "") if isinstance(kind, str) else "")
        # As JSON: of Python's values, a strict model would take no dates, and numbers would be rounded.
        return cast("object", json.loads(found)) if self.model is None else self.model.model_validate_json(found)


def _json_in(text: str, opens: str) -> str:
    """The JSON value in an answer, as it is written there.

    Args:
        text: The answer.
        opens: What the value begins with; ``""`` where it may be any.

    Raises:
        ValueError: There is none.
    """
    whole = text.strip()
    fenced = (match[1].strip() for match in _FENCED.finditer(text))
    try:
        found = next((each for each in (whole, *fenced) if each.startswith(opens) and _is_json(each)), None)
        if found is not None:
            return found
        if _is_json(whole):
            raise ValueError(f"it is JSON, and does not begin with {opens}")
        # With words around it. Only the first place counts: behind it, there are parts of a value that is broken.
        begin = min((at for sign in opens or "{[" if (at := text.find(sign)) >= 0), default=None)
        if begin is None:
            raise ValueError("there is no JSON in it")
        return text[begin : json.JSONDecoder().raw_decode(text, begin)[1]]
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
