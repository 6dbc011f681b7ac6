from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from messages.helpers import Point, properties, schema_of

INTRODUCTION = "Search the web.\n\nLooks far\nand wide.\n\n"
STYLES = {
    "google": """
Args:
    query (str): What to find,
        in words.
    limit: How many: at most 5.

Returns:
    What was found.

Raises:
    ValueError: Nothing was.
""",
    "numpy": """
Parameters
----------
query : str
    What to find,
    in words.
limit : int, optional
    How many: at most 5.

Returns
-------
str
    What was found.
""",
    "rest": """
:param query: What to find,
    in words.
:param int limit: How many: at most 5.
:returns: What was found.
""",
}


@pytest.mark.parametrize("style", STYLES)
def test_parameter_descriptions_are_read_from_docstrings_of_each_style(style: str) -> None:
    def search(query, limit=3):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return query, limit

    search.__doc__ = INTRODUCTION + STYLES[style].lstrip("\n")
    schema = schema_of(search)
    assert schema["description"] == "Search the web.\n\nLooks far\nand wide."
    assert schema["parameters"]["properties"] == {
        "query": {"description": "What to find,\nin words."},
        "limit": {"description": "How many: at most 5.", "default": 3},
    }


def test_parameters_described_together_get_the_same_description() -> None:
    def move(x: int, y: int) -> None:
        """Move.

        Parameters
        ----------
        x, y : int
            Where to.
        """

    assert [each["description"] for each in properties(move).values()] == ["Where to.", "Where to."]


def test_hint_description_overrides_the_docstring_which_overrides_the_class_description() -> None:
    def move(a: Annotated[int, Field(description="field")], b: Annotated[int, "text"], c: Point, d: Point) -> None:
        """Move.

        Args:
            a: doc
            b: doc
            c: doc
        """

    descriptions = [each["description"] for each in properties(move).values()]
    assert descriptions == ["field", "text", "doc", "A place on the map."]


@pytest.mark.parametrize("text", ["Search: a thing.\n\n:broken", "Search.\n\nArgs:\n    no colon here", "   \n", ""])
def test_malformed_or_empty_docstring_is_accepted(text: str) -> None:
    def make(a: int) -> None: ...

    make.__doc__ = text
    schema = schema_of(make)
    assert schema["parameters"]["properties"] == {"a": {"type": "integer"}}
    assert schema.get("description", "none").strip() != ""
