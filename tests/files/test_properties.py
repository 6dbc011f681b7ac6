"""The kinds of inputs, outputs and parameters: their JSON schemas, and the values that they accept."""

from typing import Any

import pytest

from lazyprompt import AudioBlock, FileBlock, ImageBlock, VideoBlock
from lazyprompt.errors import PromptFileError, SlotError
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.properties import MEDIA

UNKNOWN_KIND = "has an unknown kind 'strin' (did you mean 'string'?)"
KINDS = "string integer float boolean array object union thread image file audio"


def declare_input(fields: str, part: str = "inputs") -> dict[str, Any]:
    made: Any = Prompty.loads(f"---\n{part}: {{a: {fields}}}\n---\nuser:\n{{{{a}}}}", dialect="v2").to_dict()[part]
    return {name: value for name, value in made[0].items() if name != "name"}


def test_each_input_kind_is_accepted_and_number_means_float() -> None:
    names = f"{KINDS} number".split()
    more = {"array": ", items: string", "union": ", oneOf: [string]"}
    assert [declare_input(f"{{kind: {kind}{more.get(kind, '')}}}")["kind"] for kind in names] == [*names[:-1], "float"]
    with pytest.raises(PromptFileError, match=", ".join(KINDS.split())):
        declare_input("{kind: video}")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ("oneOf: 3", "34: inputs.a.oneOf must be a list of choices, not a number"),
        ("anyOf: {x: {kind: strin}}", f"45: inputs.a.anyOf.x {UNKNOWN_KIND}"),
        ("anyOf: [string, {kind: strin}]", f"50: inputs.a.anyOf[1] {UNKNOWN_KIND}"),
        ("oneOf: [1], anyOf: [2]", "39: inputs.a has both oneOf and anyOf; remove one of them"),
    ],
)
def test_invalid_union_choice_is_an_error_with_its_place(fields: str, fault: str) -> None:
    with pytest.raises(PromptFileError) as caught:
        declare_input(f"{{kind: union, {fields}}}")
    assert str(caught.value).partition("\n")[0].partition("; the kinds are")[0] == f"<string>:2:{fault}"


def test_kind_of_an_input_is_inferred_from_a_bare_default() -> None:
    values = {"true": "boolean", "1": "integer", "1.5": "float", "[1]": "array", "{b: 1}": "object", "x": "string"}
    # A mapping with an unknown field is a default value.
    values["{kind: string, defualt: x}"] = "object"
    assert {value: declare_input(value)["kind"] for value in values} == values


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("string", ["a"], []),
        ("integer", [1], [1.5, True, "x", [1]]),
        ("float", [1, 1.5], [True, "x", [1]]),
        ("boolean", [True], [1, "x"]),
        ("array", [[1], (1,)], [1, {"a": 1}, "x"]),
        ("object", [{"a": 1}], [1, [1], "x"]),
    ],
)
def test_each_kind_accepts_only_its_values(kind: str, right: list[Any], wrong: list[Any]) -> None:
    more = ", items: {kind: union}" if kind == "array" else ""
    prompt = Prompty.loads(f"---\ninputs: {{a: {{kind: {kind}{more}}}}}\n---\nuser:\n{{{{a}}}}", dialect="v2")
    refused = []
    for value in (*right, *wrong):
        try:
            prompt.messages({"a": value})
        except SlotError:
            refused.append(value)
    assert refused == wrong


def test_output_kinds_become_json_schema_types() -> None:
    kinds = ("string", "integer", "float", "boolean", "object", "array")
    fields = ", ".join(f"{kind}: {{kind: {kind}, required: true}}" for kind in kinds)
    prompt = Prompty.loads(f"---\nmodel: m\noutputs: {{{fields}}}\n---\nuser:\nHi", dialect="v2")
    schema = prompt.request(provider="openai")["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {
        **{each: {"type": each} for each in ("string", "integer", "boolean")},
        "float": {"type": "number"},
        "object": {"type": "object", "properties": {}, "additionalProperties": False},
        "array": {"type": "array", "items": {"type": "string"}},
    }


def test_each_media_kind_has_a_block_class() -> None:
    assert {"image": ImageBlock, "audio": AudioBlock, "file": FileBlock, "video": VideoBlock} == MEDIA
