"""Parsing any response raises no error, keeps plain text, and takes linear time."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.helpers import calls, message_contents
from lazyprompt import Markers
from lazyprompt.answers.forms import FORMS, form_of
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.messages.msg import Msg

FAMILIES = {name: Markers.for_model(name) for name in Markers.families()}

PARSERS = {form: ResponseParser(form) for form in FORMS}
PARSERS_WITH_TOOLS = {form: ResponseParser(form, tools=["f"]) for form in FORMS}


def markers(form: str) -> list[str]:
    """All markers of a form."""
    found, _, stop = form_of(form)
    parts = [(each.start, each.end, each.separator, each.quote) for each in found.calls]
    channels = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"] if found.channels else []
    marks = {*stop, *found.drop, *(found.thought or ()), *(mark for marks in parts for mark in marks), *channels}
    return sorted(marks - {""})


# Parts of tool calls in any form.
PARTS = [
    *('{"name": "f", "arguments": ', '{"a": 1}', "}", '"name": ', '"f"', '"id": "call_0"', '"\\ud800"', "null", "NaN"),
    *("<function=f>", "<parameter=a>", "</parameter>", "</function>", "<arg_key>a</arg_key>", "<arg_value>", "call:f{"),
    *('<invoke name="f">', '<parameter name="a">', "</invoke>", "[f(a=1)", "]", "f\n{", "functions.f:0", " to=f"),
    *("1e999", *"-'\"\\[{(,;:", "```json", "```", *"\n <😀\x00", "\ud83d"),
    "9" * 5000,
    "[" * 2000,
    '{"a":' * 2000,
]


@given(st.data())
def test_parsing_any_text_never_raises(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(list(FORMS)))
    pieces = st.one_of(st.sampled_from([*markers(form), *PARTS]), st.text(st.characters(codec=None), max_size=4))
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    for parser in (PARSERS[form], PARSERS_WITH_TOOLS[form]):
        message = parser.parse(text)
        assert isinstance(message, Msg)
        message.text.encode()  # well formed, so that it can be sent again
        for call in calls(message):
            (call.raw_input or call.name).encode()


@given(st.data())
def test_text_without_markers_is_returned_unchanged(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from([*FORMS, *FAMILIES]))
    text = data.draw(st.text(st.characters(codec="utf-8", exclude_characters="<[]{")))
    parser = ResponseParser(form, thinking=False)
    if not any(marker in text for marker in markers(form)):
        assert parser.parse(text).content == text


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "  a  ", "a <b> c", "x < y", "1 ]2[ {3}", "a\n\n\nb\n", "｜", "< |im_end|>"]
)
@pytest.mark.parametrize("form", FORMS)
def test_text_with_marker_like_characters_is_returned_unchanged(form: str, text: str) -> None:
    assert ResponseParser(form, thinking=False).parse(text).content == text


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [
        *(('{"a": 1, "a": 2}', None), ('{"a": NaN}', '{"a": NaN}'), ('{"a": -Infinity}', '{"a": -Infinity}')),
        *(('{"a": 1e999}', '{"a": 1e999}'), ('{"a": "\\ud800"}', '{"a": "\\ud800"}')),
        ('{"a": ' + "9" * 5000 + "}", '{"a": ' + "9" * 5000 + "}"),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", '{"a": ' + "[" * 300 + "]" * 300 + "}"),
        ('{"a": ' + "[" * 90_000 + "]" * 90_000 + "}", '{"a": ' + "[" * 90_000 + "]" * 90_000 + "}"),
        *(('{"a": 1,}', '{"a": 1,}'), ("{'a': 1}", "{'a': 1}"), ("[]", "[]"), ("3", "3"), ('"x"', '"x"')),
        *(('"[1]"', '"[1]"'), ('"\\"{}\\""', '"\\"{}\\""')),
    ],
)
def test_arguments_that_are_not_a_json_object_are_kept_as_raw_text(arguments: str, raw: str | None) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
    (call,) = calls(PARSERS["hermes"].parse(text))
    assert (call.name, call.raw_input) == ("f", raw)
    assert call.input == ({} if raw else {"a": 2})
    text = f"<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
    (call,) = calls(PARSERS["kimi-k2"].parse(text))
    assert (call.name, call.raw_input) == ("f", raw)


def test_lone_surrogates_are_replaced_and_split_pairs_are_joined() -> None:
    assert PARSERS["hermes"].parse("a\ud83db").content == "a\ufffdb"
    stream = ResponseParser("qwen2.5").stream()
    assert [each.text for chunk in ("a\ud83d", "\ude00b", "\ud83d") for each in stream.feed(chunk)] == ["a", "😀b"]
    assert stream.finish().content == "a😀b\ufffd"
    assert message_contents(PARSERS["hermes"].parse('<tool_call>{"name": "f\\ud800"}</tool_call>')) == [("f\ufffd", {})]


def seconds(parser: ResponseParser, text: str) -> float:
    """The time to parse a text."""
    start = process_time()
    parser.parse(text)
    return process_time() - start


@pytest.mark.timing
@pytest.mark.parametrize(
    ("form", "start", "unit"),
    [
        *(("hermes", "", "<"), ("hermes", "", "<tool_cal"), ("hermes", "", '<tool_call>{"name": "f"')),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "', "</tool_call>"),
        ("qwen-xml", "<tool_call><function=f>", "<parameter=a></parameter> "),
        *(("llama", "", '{"name": "f", "parameters": {}};'), ("pythonic", "[", "f(a='")),
        *(("lfm2", "<|tool_call_start|>", "[f('''"), ("mistral", "", "[TOOL_CALLS]")),
        ("deepseek", "", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>"),
        *(("glm-4.5", "<tool_call>f", "<arg_key>a</arg_key><arg_value>"), ("command-r", "", "Action: ``")),
        ("gemma-4", "<|tool_call>call:f{a:", '<|"|>'),
        # Long numbers and escaped quotes took quadratic time.
        *(("gemma-4", "<|tool_call>call:f{a:", "0"), ("gemma-4", "<|tool_call>call:f{a:", "-.")),
        *(("pythonic", "[f(a=!", '\\"'), ("lfm2", "<|tool_call_start|>[f(a=!", "\\'")),
        *(("gemma-4", '<|tool_call>call:f{a:"', '\\"'), ("lfm2", "<|tool_call_start|>[f(a='", "\\'")),
        *(("lfm2", "<|tool_call_start|>[f(a=[", "'b', "), ("hermes", "<tool_call>{'a':", "{'a':")),
        *(("kimi-k2", "<|tool_call_begin|>", "functions."), ("harmony", "", "<|channel|>")),
    ],
)
def test_parsing_time_is_linear_in_the_text_length(form: str, start: str, unit: str) -> None:
    quarter, whole = (start + unit * (size // len(unit)) for size in (100_000, 400_000))
    # The ratio of very short times cannot be measured.
    assert seconds(PARSERS[form], whole) < 10 * max(seconds(PARSERS[form], quarter), 0.01)


@pytest.mark.timing
@pytest.mark.parametrize("unit", ["<tool_ca", "  ", '{"a": "'])
def test_streaming_time_is_linear_in_the_text_length(unit: str) -> None:
    def run(size: int) -> float:
        stream = ResponseParser("hermes").stream()
        start = process_time()
        for character in '<tool_call>{"name": "f", "arguments": ' + unit * (size // len(unit)):
            stream.feed(character)
        stream.finish()
        return process_time() - start

    assert run(100_000) < 10 * max(run(25_000), 0.01)
