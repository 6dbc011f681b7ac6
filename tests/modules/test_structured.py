"""Structured responses: the schema that is sent, and the parsed response."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict, RootModel

from lazyprompt import FormatError, ModuleError
from lazyprompt.modules._reading import AnswerSchema
from modules.online_scenes import ALL, ASKED, NAMES, PROMPTER, SOME, TWO_WAYS, module, ways
from support.model_server.server import Answer, HalfCall, ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable


class City(BaseModel):
    """A city."""

    model_config = ConfigDict(extra="forbid")
    name: str
    people: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    pair: tuple[int, int]


class Node(BaseModel):
    value: int
    below: list[Node] = []


class Numbers(RootModel[list[int]]):
    pass


SCHEMA: dict[str, Any] = {
    "title": "City",
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["name", "people"],
    "additionalProperties": False,
}
OPENAIS = {"type": "json_schema", "json_schema": {"name": "City", "schema": SCHEMA, "strict": True}}
ROME: dict[str, Any] = {"name": "Rome", "people": 2_750_000}
ANSWER = Answer(json.dumps(ROME))  # of the server
# The place of the schema in the request; None if the schema is in the prompt instead.
PLACES: dict[str, Callable[[dict[str, Any]], Any] | None] = {
    **dict.fromkeys(NAMES, None),
    **dict.fromkeys(
        ("dashscope", "moonshot", "mistral", "xai", "vllm"),
        lambda body: body["response_format"]["json_schema"]["schema"],
    ),
    "openai-responses": lambda body: body["text"]["format"]["schema"],
    "anthropic": lambda body: body["output_config"]["format"]["schema"],
    "gemini": lambda body: body["generationConfig"]["responseJsonSchema"],
    "ollama": lambda body: body["format"],
}


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("form", [City, SCHEMA, OPENAIS], ids=["model", "schema", "openai"])
def test_structured_response_is_parsed_and_the_schema_is_sent(server: ModelServer, source: str, form: Any) -> None:
    model = module(server, source)
    for way in ways(model, ASKED, response_format=form):
        reply = way()
        assert reply.parsed == (City(**ROME) if form is City else ROME)
        assert reply == json.dumps(ROME)
    where = PLACES[source]
    for seen in server.seen:
        assert seen.refusal is None
        is_in_prompt = "Its JSON schema:" in json.dumps(seen.payload)
        assert is_in_prompt == (where is None)
        if where is not None:
            assert where(seen.body)["required"] == ["name", "people"]
    assert model.prompter is PROMPTER
    assert "JSON" not in json.dumps(dict(model.payload(ASKED)))


WRONG = ["It is Rome.", '{"name": "Rome"}', '{"name": "Rome", "people": "many"}', '{"name": "Ro', "[]", "5"]


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("wrong", WRONG)
def test_response_that_violates_the_schema_is_an_error(server: ModelServer, source: str, wrong: str) -> None:
    server.answer = Answer(wrong)
    some = TWO_WAYS[(NAMES.index(source) + WRONG.index(wrong)) % 2]
    for way in list(ways(module(server, source), ASKED, response_format=City))[some]:
        with pytest.raises(ModuleError, match="the response is not a valid City: ") as caught:
            way()
        assert (caught.value.kind, caught.value.partial) == ("invalid", wrong)
        assert caught.value.partial.parsed is None
        assert "repeat the request" in str(caught.value)


@SOME
def test_code_fences_and_text_around_the_json_are_ignored(server: ModelServer, source: str) -> None:
    server.answer = Answer(f"Here you [are]:\n\n```json\n{json.dumps(ROME, indent=2)}\n```\nAnything else?")
    for way in ways(module(server, source), ASKED, response_format=City):
        assert way().parsed == City(**ROME)


@SOME
def test_response_with_tool_calls_is_not_parsed(server: ModelServer, source: str) -> None:
    """A response with tool calls is not the final response, whatever its text."""
    server.answer = Answer("Let me see.", calls=(("c1", "weather", {"city": "Rome"}),))
    for way in ways(module(server, source), ASKED, response_format=City):
        reply = way()
        assert (reply.parsed, [call.name for call in reply.tool_calls]) == (None, ["weather"])
    server.faults = lambda _: HalfCall()
    for way in ways(module(server, source), ASKED, response_format=City):
        with pytest.raises(ModuleError) as caught:
            way()
        assert caught.value.kind in ("invalid", "empty")


@SOME
def test_response_format_works_with_a_history(server: ModelServer, source: str) -> None:
    model = module(server, source).prompt("Answer.", [["a", "b"]])
    assert model("where?", [["c", "d"]], response_format=City).parsed == City(**ROME)


def test_schema_is_merged_into_output_config_of_the_caller(server: ModelServer) -> None:
    """Anthropic's ``output_config`` contains the schema and other options."""
    module(server, "anthropic")(ASKED, response_format=City, output_config={"effort": "low"})
    config = server.seen[0].body["output_config"]
    assert (config["effort"], config["format"]["type"]) == ("low", "json_schema")


@SOME
@pytest.mark.parametrize(
    "wrong",
    [
        5,
        "City",
        City(**ROME),
        list[int],
        {"json_schema": 5},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        {"type": "object", "properties": {"a": object()}},
        {1: 2},
        {"type": "object", "default": float("nan")},
    ],
)
def test_invalid_response_format_is_rejected_before_the_request(server: ModelServer, source: str, wrong: Any) -> None:
    for way in ways(module(server, source), ASKED, response_format=wrong):
        with pytest.raises(FormatError, match="response_format"):
            way()
    assert not server.seen


# Parsing.


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Rome", "people": 5}',
        '  \n{"name": "Rome",\n "people": 5}\n',
        '```json\n{"name": "Rome", "people": 5}\n```',
        '```JSON\n{"name": "Rome", "people": 5}\n```',
        '```\n{"name": "Rome", "people": 5}\n```',
        '```json {"name": "Rome", "people": 5}```',
        'Sure! ```json\r\n{"name": "Rome", "people": 5}\r\n``` Bye.',
        'Sure: {"name": "Rome", "people": 5}. Is there {more}?',
        'As [1] says: {"name": "Rome", "people": 5}',
        '```python\nprint(1)\n```\n```json\n{"name": "Rome", "people": 5}\n```',
        '"{" is how it begins, so:\n```json\n{"name": "Rome", "people": 5}\n```',
    ],
)
def test_json_object_is_found_in_the_response_text(text: str) -> None:
    assert AnswerSchema.of(City).read(text) == City(name="Rome", people=5)
    assert AnswerSchema.of(SCHEMA).read(text) == {"name": "Rome", "people": 5}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rome",
        "null",
        '"Rome"',
        "5",
        '[{"name": "Rome", "people": 5}]',
        '{"name": "Rome", "people": {"a": 1}',
        '{"name": {"name": "Rome", "people": 5}, "pe',
        '```json\n{"name": "Rome", "peop\n```',
        "{" * 100_000,
        '{"a":' * 100_000,
        '{"a":{' + '"b":{' * 100_000,
        "[" * 100_000,
    ],
)
def test_text_without_a_complete_json_object_is_an_error(text: str) -> None:
    for structure in (AnswerSchema.of(City), AnswerSchema.of(SCHEMA)):
        with pytest.raises(ValueError, match=r".") as caught:
            structure.read(text)
        assert not isinstance(caught.value, RecursionError)
        assert not text.startswith('{"a":{') or str(caught.value) == "the JSON is nested too deeply"


def test_json_array_is_found_only_if_the_schema_is_an_array() -> None:
    text = 'As {it} is: [1, 2, 3] and no "[more]"'
    assert AnswerSchema.of(Numbers).read(text) == Numbers([1, 2, 3])
    assert AnswerSchema.of({"type": "array"}).read(text) == [1, 2, 3]
    with pytest.raises(ValueError, match=r"."):
        AnswerSchema.of({"type": "array"}).read("[1, [2, 3]")
    assert AnswerSchema.of({"type": "string"}).read('"Rome"') == "Rome"
    assert AnswerSchema.of({"type": ["object", "null"]}).read("null") is None


def test_strict_pydantic_model_is_validated_in_json_mode() -> None:
    """In Python mode, a strict model accepts no string as a date, and no list as a tuple."""
    parsed = AnswerSchema.of(Strict).read('{"day": "2026-11-22", "pair": [1, 2]}')
    assert parsed == Strict(day=dt.date(2026, 11, 22), pair=(1, 2))


def test_recursive_pydantic_model_is_parsed() -> None:
    node = AnswerSchema.of(Node).read('Well: {"value": 1, "below": [{"value": 2}]}')
    assert node == Node(value=1, below=[Node(value=2)])


def test_response_format_may_be_a_pydantic_model_a_schema_or_an_openai_format() -> None:
    assert AnswerSchema.of(City).name == AnswerSchema.of(SCHEMA).name == AnswerSchema.of(OPENAIS).name == "City"
    assert AnswerSchema.of(SCHEMA).schema == AnswerSchema.of(OPENAIS).schema == SCHEMA
    assert AnswerSchema.of(SCHEMA).schema is not SCHEMA
    unnamed = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    for given in ({"type": "json_object"}, {"type": "object"}, unnamed):
        assert AnswerSchema.of(given) == AnswerSchema("answer", {"type": "object"}, None)
    assert json.dumps(SCHEMA) in AnswerSchema.of(SCHEMA).instruction
