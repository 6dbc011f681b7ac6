"""Gemini contents: the block of each kind of part, and the errors for malformed parts."""

import re
from typing import Any

import pytest

from lazyprompt import Base64Source, Msg, URLSource, messages_from
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]}
PNG = {"mimeType": "image/png", "data": "AAAA"}
X, IMAGE = TextBlock("x"), ImageBlock(Base64Source("image/png", "AAAA"))


def response(**fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "f", **fields}}


RESULTS: list[Any] = [
    ({}, "", False),
    ({"response": {"output": "x"}}, "x", False),
    ({"response": {"error": "x"}}, "x", True),
    ({"response": {"error": "x", "b": 1}}, '{"error": "x", "b": 1}', False),
    ({"response": {"output": "x"}, "parts": [{"inlineData": PNG}]}, [X, IMAGE], False),
    ({"parts": [{"fileData": {"fileUri": "gs://a"}}]}, [FileBlock(URLSource("gs://a"))], False),
]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ("x", X),
        ({"text": "x", "thought": False, "thoughtSignature": b"ab"}, TextBlock("x", signature="YWI=")),
        ({"text": "x", "thought": True}, ThinkingBlock("x", provider="gemini")),
        ({"inline_data": {"mime_type": "image/png", "data": b"\0\0\0"}}, IMAGE),
        ({"fileData": {"fileUri": "gs://a", "mimeType": "image/png"}}, ImageBlock(URLSource("gs://a", "image/png"))),
        ({"functionCall": {"name": "g", "id": "c"}}, ToolUseBlock("c", "g")),
        ({"functionCall": {"name": "g"}}, ToolUseBlock("call_without_id_1", "g")),
        *(
            (response(**fields), ToolResultBlock("call_without_id_0", "f", output, is_error=is_error))
            for fields, output, is_error in RESULTS
        ),
    ],
)
def test_gemini_part_becomes_a_block(part: Any, block: Any) -> None:
    (_, message) = messages_from([CALL, {"role": "model", "parts": [part]}])
    assert message.blocks == (block,)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        *(("a", " must be a list, not str"), ([3], "[0] must be a dict, not int")),
        ([{}], "[0] contains nothing; use one of text, function_call, function_response, inline_data, file_data"),
        ([{"text": "a", "inlineData": {}}], "[0] contains 'text' and 'inline_data'; use one of text, function_call"),
        ([{"text": 3}], "[0].text must be a string, not int"),
        ([{"functionCall": 3}], "[0].function_call must be a dict, not int"),
        ([{"functionCall": {}}], "[0].function_call.name is missing or empty"),
        ([{"functionCall": {"name": "f", "id": 3}}], "[0].function_call.id must be a string, not int"),
        ([{"functionResponse": 3}], "[0].function_response must be a dict, not int"),
        ([response(name=3)], "[0].function_response.name must be a string, not int"),
        ([response(id=3)], "[0].function_response.id must be a string, not int"),
        ([response(name="g")], "[0].function_response has no id, and no call to 'g' is waiting for a result"),
        ([response(response=3)], "[0].function_response.response must be a dict, not int"),
        ([response(response={"a": float("nan")})], "[0].function_response.response.a is nan, which is not valid JSON"),
        ([response(parts=3)], "[0].function_response.parts must be a list, not int"),
        ([response(parts=["", 3])], "[0].function_response.parts[0] must be a dict, not str"),
        ([response(parts=[{"inlineData": {}}])], "[0].function_response.parts[0].inline_data.mime_type is missing"),
        ([{"inlineData": 3}], "[0].inline_data must be a dict, not int"),
        (["", {"inlineData": {"mimeType": 3}}], "[1].inline_data.mime_type must be a string, not int"),
        ([{"inlineData": {"data": 3}}], "[0].inline_data.data must be a string, not int"),
        ([{"inlineData": {"mimeType": "image/png"}}], "[0].inline_data.data is missing or empty"),
        ([{"fileData": {"mimeType": "image/png"}}], "[0].file_data.file_uri is missing or empty"),
        ([response(willContinue=float("nan"))], "[0].function_response.will_continue is nan, which is not valid JSON"),
        ([response(), response()], "[1].function_response has no id, and no call to 'f' is waiting for a result"),
    ],
)
def test_malformed_gemini_part_is_refused_with_its_path(parts: Any, message: str) -> None:
    with pytest.raises(HistoryError, match="^" + re.escape(f"history[1].parts{message}")):
        messages_from([CALL, {"parts": parts}])


def test_gemini_part_fields_without_a_block_field_are_kept_in_the_metadata() -> None:
    (message,) = messages_from(
        [{"role": "user", "parts": ["x", {"text": "x", "own": 1}, {"executableCode": {"a": 1}}]}]
    )
    part_fields = {"parts[1]": {"own": 1}, "parts[2]": {"executable_code": {"a": 1}}}
    assert message == Msg("user", [X, X], "user", metadata={"part_fields": part_fields})
