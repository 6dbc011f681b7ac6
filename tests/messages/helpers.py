import typing
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from lazyprompt.errors import ToolsError
from lazyprompt.messages.tools import ToolSet, function_schema


class Level(IntEnum):
    LOW = 1


class Point(BaseModel):
    """A place on the map."""

    x: int
    title: str = Field("here", description="what stands there")


def search(query: str, limit: int = 10) -> str:
    """Search the web."""
    return f"{query}{limit}"


def now() -> str:
    return ""


async def fetch(url: str) -> str:
    """Fetch a page."""
    return url


def tool(name: str = "now", **function: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **function}}


def schema_of(function: Callable[..., object]) -> dict[str, Any]:
    schema = function_schema(function)["function"]
    assert isinstance(schema, dict)
    return typing.cast("dict[str, Any]", schema)


def properties(function: Callable[..., object]) -> dict[str, Any]:
    return typing.cast("dict[str, Any]", schema_of(function)["parameters"]["properties"])


def tools_error(tools: object) -> str:
    with pytest.raises(ToolsError) as caught:
        ToolSet.of(typing.cast("list[dict[str, object]]", tools))
    return str(caught.value)


class Shop:
    def buy(self, item: str) -> None:
        """Buy it."""

    @classmethod
    def open(cls, hour: int) -> None: ...

    @staticmethod
    def close(hour: int) -> None: ...

    def __call__(self, item: str) -> None: ...
