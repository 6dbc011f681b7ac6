from collections.abc import Callable
from functools import lru_cache, partial, wraps

import pytest

from lazyprompt.errors import ToolsError
from lazyprompt.messages.tools import function_schema
from messages.helpers import Point, Shop, now, properties, schema_of, search, tool, tools_error


def test_a_function_becomes_a_tool() -> None:
    assert function_schema(search) == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the web.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
                "required": ["query"],
            },
        },
    }


def test_function_without_parameters_or_docstring_has_no_properties_and_no_description() -> None:
    assert schema_of(now) == {"name": "now", "parameters": {"type": "object", "properties": {}}}


def test_function_schema_returns_a_new_dict_on_each_call() -> None:
    function_schema(search).clear()
    properties(search)["query"]["type"] = "null"
    assert properties(search)["query"] == {"type": "string"}


class Hashless(Shop):
    __hash__ = None  # type: ignore[assignment]


def test_schema_of_a_method_leaves_out_self_and_cls() -> None:
    """A method passed through its class had a required parameter `self` for the model."""
    assert schema_of(Shop().buy)["name"] == "buy"
    assert schema_of(Shop().buy)["description"] == "Buy it."
    assert list(properties(Shop().buy)) == list(properties(Shop.buy)) == ["item"]
    assert list(properties(Shop().open)) == list(properties(Shop.open)) == ["hour"]
    assert list(properties(Shop.__dict__["open"].__func__)) == list(properties(Shop.close)) == ["hour"]


def test_schema_of_a_partial_leaves_out_the_bound_arguments() -> None:
    def move(x: int, y: int, *, z: int, speed: int = 1) -> None:
        """Move there."""

    assert list(properties(partial(move, 1))) == ["y", "z", "speed"]
    bound = schema_of(partial(partial(move, z=1), 1, speed=3))
    assert bound["name"] == "move"
    assert bound["description"] == "Move there."
    assert bound["parameters"] == {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"]}
    assert list(properties(partial(Shop().buy, "x"))) == []


def test_schema_of_a_wrapper_equals_the_schema_of_the_wrapped_function() -> None:
    @wraps(search)
    def wrapper(*args: object, **kwargs: object) -> object:
        return args, kwargs

    assert function_schema(wrapper) == function_schema(lru_cache(search)) == function_schema(search)


def test_builtin_function_with_a_signature_is_accepted_as_a_tool() -> None:
    assert properties(len) == {"obj": {}}


@pytest.mark.parametrize("wrong", [Shop, int, Shop(), Hashless(), Point, partial(int, "5"), max])
def test_classes_callable_objects_and_opaque_builtins_are_refused_as_tools(wrong: Callable[..., object]) -> None:
    message = tools_error([tool(), wrong])
    assert message.startswith("tools[1]: ")
    assert "wrap the object in a function" in message
    with pytest.raises(ToolsError):
        function_schema(wrong)


def test_lambda_is_refused_as_a_tool() -> None:
    assert "'<lambda>'" in tools_error([lambda x: x])


def test_function_with_args_or_kwargs_is_refused_with_the_parameter_name() -> None:
    def many(first: int, *others: int) -> None: ...

    def options(first: int, **others: int) -> None: ...

    assert "takes *others," in tools_error([many])
    assert "takes **others," in tools_error([options])
    assert "takes **others," in tools_error([partial(options, x=1)])
