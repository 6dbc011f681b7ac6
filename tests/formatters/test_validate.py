"""The validator reports the place and the fix of each violation, and accepts payloads of real requests."""

import re
from copy import deepcopy
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.payloads import paths
from lazyprompt import ChatFormatter, FormatError, MultiAgentFormatter
from lazyprompt.formatters import _validate
from lazyprompt.formatters.profile import HistoryStyle
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.formatters.responses import OPENAI_RESPONSES
from support.conversations import Maker
from support.providers.judges import (
    BITMAP,
    BROKEN,
    CACHED,
    CACHED_LONG,
    FUNCTION,
    IMAGE,
    PIECES,
    PNG,
    REASONING,
    RESULT,
    TEXT,
    THOUGHT,
    TOOL,
    USE,
    A,
    S,
    U,
    calls,
    contents,
    items,
    msg,
    parts,
    told,
    turns,
)
from support.providers.types import Payload

SHORT, SCHEMA = {"type": "ephemeral"}, {"type": "object", "properties": {}}
LONG = "x" * 41
CALLED = {"name": "f", "arguments": "{}"}
CALLED_TOOL = {"name": "f", "description": "d", "parameters": {}, "strict": True}
BAD_CALL, INPUT_TEXT = {"name": 5, "arguments": "[" * 61}, {"type": "input_text", "text": "a"}
REDACTED = {"type": "redacted_thinking", "data": "eA=="}
BITMAP_CHUNK = {"type": "image_url", "image_url": "data:image/bmp"}
DOCUMENT_URL = {"type": "document", "source": {"type": "url"}}
DECLARED = {"functionDeclarations": [{"name": "a b"}]}
LINE = re.compile(r"  (the payload|[\w.\[\]$-]+) \S.*; \S.*")


def complaints(provider: str, payload: Any) -> list[str]:
    """The violations that the validator reports for a payload: place, problem and fix, one line each."""
    before = deepcopy(payload)
    _validate._shape_of.cache_clear()  # noqa: SLF001 - otherwise the check of another test is judged
    try:
        ChatFormatter(provider).validate(payload)
    except FormatError as error:
        head, *lines = str(error).splitlines()
        assert head == f"{provider} would reject this payload:"
        assert lines
        assert all(map(LINE.fullmatch, lines)), lines
        return [line.removeprefix("  ") for line in lines]
    finally:
        assert payload == before
    return []


WRONG: list[tuple[str, Payload, str]] = [
    ("openai", {}, "messages is missing; add it"),
    ("openai", turns(), "messages is empty; add at least 1, or remove the key"),
    ("openai", {"messages": "Hi."}, "messages is the str 'Hi.'; use a list"),
    # Valid system text once hid invalid messages.
    ("openai", {"messages": [S, 5]}, "messages[1] is the int 5; use a JSON object"),
    ("openai", turns(U | {"role": "human"}),
     "messages[0].role is the str 'human'; use 'system' or 'user' or 'assistant' or 'tool' or 'developer'"),
    ("openai", turns({"role": "user"}), "messages[0].content is missing; add it"),
    ("openai", turns(msg("user", [])), "messages[0].content is empty; add at least 1, or remove the key"),
    ("openai", turns(U | {"nmae": "Ann"}), "messages[0].nmae is an unknown key; remove it (did you mean 'name'?)"),
    ("openai", turns(U | {"content": None}), "messages[0].content is None; use a list"),
    ("openai", turns("U", msg("assistant", None)),
     "messages[1].content is missing, and so are tool_calls; add one of them"),
    ("openai", turns("UC1"),
     "messages[1].tool_calls[1] makes the call 'call_2', which has no result; put its result directly after it"),
    ("openai", turns("UC12", "1"),
     ("messages[4] is the result of 'call_1', but no such call is waiting for a result; "
     "put it directly after its call, or remove it")),
    ("openai", turns("U", calls("a", "a"), msg("tool", "Rain.", tool_call_id="a")),
     "messages[1].tool_calls[1] repeats the id 'a'; use a unique id for each call"),
    ("openai", turns(
        U | {"name": "a b"},
        msg("user", [{"type": "text", "text": 5}, {"type": "smell"}, {"type": "image_url", "image_url": {}}]),
        calls(LONG, name="a.b"),
        {"role": "asistant", "content": "Hi.", "mood": "good"},
        tools=[TOOL, TOOL, {"type": "function"}],
    ),
     ("messages[1].content[0].text is the int 5; use text\n"
     "messages[1].content[1].type is the str 'smell'; use 'text' or 'image_url' or 'input_audio' or 'file'\n"
     "messages[1].content[2].image_url.url is missing; add it\n"
     "messages[3].role is the str 'asistant'; "
     "use 'system' or 'user' or 'assistant' or 'tool' or 'developer' (did you mean 'assistant'?)\n"
     "tools[2].function is missing; add it\n"
     "messages[0].name is 'a b'; use [a-zA-Z0-9_-]{1,64}\n"
     f"messages[2].tool_calls[0] has the invalid id '{LONG}'; use [^\\x00-\\x1f\\x7f]{{1,40}}\n"
     "messages[2].tool_calls[0] calls a tool with the invalid name 'a.b'; use [a-zA-Z0-9_-]{1,64}\n"
     f"messages[2].tool_calls[0] makes the call '{LONG}', which has no result; put its result directly after it\n"
     "tools[1].function.name is 'weather', the name of another tool; use a unique name for each tool")),
    ("deepseek", turns("SUU"), "messages[2] has the role 'user', like the turn before it; join both messages"),
    # An unknown role is reported once, and not as a wrong first turn too.
    ("deepseek", turns(S | {"role": "developer"}, U),
     "messages[0].role is the str 'developer'; use 'system' or 'user' or 'assistant' or 'tool'"),
    ("deepseek", turns(U | {"role": "human"}, U | {"role": "human"}),
     ("messages[0].role is the str 'human'; use 'system' or 'user' or 'assistant' or 'tool'\n"
     "messages[1].role is the str 'human'; use 'system' or 'user' or 'assistant' or 'tool'\n"
     "messages[0] and all later messages are not user messages; add a user message")),
    ("deepseek", turns("UC", *"12", model="deepseek-reasoner"),
     'messages[1] calls tools without the preceding reasoning; set "reasoning_content", or "" if there is none'),
    ("openai", turns(msg("system", [IMAGE]), U),
     ("messages[0].content[0].type is the str 'image_url'; use 'text'\n"
     "messages[0].content[0] is image from the system; openai does not accept it; remove it")),
    ("ollama", turns(S | {"images": [PNG]}, U),
     "messages[0].images[0] is image from the system; ollama does not accept it; remove it"),
    ("deepseek", turns(msg("user", [IMAGE])),
     ("messages[0].content[0].type is the str 'image_url'; use 'text'\n"
     "messages[0].content[0] is image from the user; deepseek does not accept it; remove it")),
    ("moonshot", turns(msg("user", "")), "messages[0].content is a blank text; remove it"),
    ("moonshot", turns("U", msg("assistant", " ", partial=True)), "messages[1].content is a blank text; remove it"),
    ("moonshot", turns("U", msg("assistant", [TEXT | {"text": " "}], partial=True)),
     "messages[1].content[0] is a blank text; remove it"),
    ("moonshot", turns(msg("user", [{"type": "image_url", "image_url": {"url": "x:" + LONG * 2}}])),
     (f"messages[0].content[0] is image as 'x:{'x' * 58}'; "
     "use base64 data of type image/png, image/jpeg, image/gif, image/webp")),
    ("vllm", turns("UAS"), "messages[2] is a second system message; put all system text into the first message"),
    ("ollama-generate", {"prompt": "", "images": [5], "system": " "},
     ("images[0] is the int 5; use base64\n"
     "system is a blank text; remove it\n"
     "prompt is a blank text; remove it")),
    ("dashscope-multimodal", turns(msg("user", [{"text": "a", "image": "b"}])),
     "messages[0].content[0] must have exactly one content key; use one of text, image, audio, video"),
    ("anthropic", turns(msg("user", [BITMAP])),
     ("messages[0].content[0] is image as 'data:image/bmp'; "
     "use a URL or base64 data of type image/png, image/jpeg, image/gif, image/webp")),
    ("anthropic", turns("U", msg("assistant", [USE]), msg("user", [TEXT | {"text": " "}, RESULT])),
     ("messages[1].content[0] makes the call 'toolu_1', which has no result; put its result directly after it\n"
     "messages[2].content[0] is a blank text; remove it\n"
     "messages[2].content[1] is the result of 'toolu_1', but no such call is waiting for a result; "
     "put it directly after its call, or remove it")),
    ("anthropic", turns("U", msg("assistant", "It is ")), "messages[1].content ends in white space; strip it"),
    ("anthropic", turns("U", msg("assistant", [TEXT, THOUGHT]), "U"),
     "messages[1].content[1] is a final thinking block; add the content that followed it"),
    ("anthropic", turns(msg("user", [CACHED] * 5)),
     "messages[0].content[4] is one cache breakpoint too many; set at most 4"),
    ("anthropic", turns(msg("user", [CACHED, CACHED_LONG])),
     "messages[0].content[1] has a longer lifetime than a breakpoint before it; put longer lifetimes first"),
    ("anthropic", turns("U", system=[TEXT | {"text": 5}]), "system[0].text is the int 5; use text"),
    ("anthropic", turns("U", tools=[{"name": "a"}]), "tools[0].input_schema is missing; add it"),
    ("anthropic", turns(msg("user", [USE]), msg("user", [RESULT])),
     ("messages[0].content[0].type is the str 'tool_use'; "
     "use 'text' or 'image' or 'document' or 'search_result' or 'container_upload' or 'tool_result' "
     "(did you mean 'tool_result'?)\n"
     "messages[0].content[0] is a call block from the user; only the assistant may think and call tools")),
    ("anthropic", turns("UA", model="claude-opus-4-6"),
     "messages[1] has the role 'assistant', but comes last; end with a user turn"),
    ("gemini", contents(parts("user")),
     ("contents[0].parts is empty; add at least 1, or remove the key\n"
     "contents[0] has no content; add content, or remove it")),
    ("gemini", contents("um"), "contents[1] has the role 'assistant', but comes last; end with a user turn"),
    ("gemini", {"system_instruction": "s", "contents": []},
     ("contents is empty; add at least 1, or remove the key\n"
     "system_instruction and all later messages are not user messages; add a user message")),
    ("gemini", contents("u", parts("model", FUNCTION, FUNCTION), told()),
     "contents[1].parts[1] makes the call 'call 1.1', which has no result; put its result directly after it"),
    ("gemini", contents("u", tools=[DECLARED]),
     "tools[0].functionDeclarations[0].name is 'a b'; use [a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
    ("openai-responses", items("U", msg("assistant", [TEXT])),
     "input[1].content[0].type is the str 'text'; use 'output_text' or 'refusal'"),
    ("openai-responses", items("U", tools=[TOOL]),
     ("tools[0].function is an unknown key; remove it\n"
     "tools[0].name is missing; add it\n"
     "tools[0].parameters is missing; add it")),
    ("openai", turns(
        msg("user", [{"type": "input_audio", "input_audio": {"data": "!", "format": "ogg"}}]),
        {"role": "assistant", "tool_calls": [], "reasoning": 5, "thinking_blocks": [THOUGHT | {"signature": 5}]},
        msg("assistant", None, tool_calls=[{"type": "custom"}, {"function": BAD_CALL}, {"type": "magic"}]),
        {"role": "tool", "content": "Rain."},
        tools=[{"function": {"name": "f", "parameters": []}}, {"type": 5}, {"type": "function", "name": "a"}],
    ),
     ("messages[0].content[0].input_audio.data is the str '!'; use base64\n"
     "messages[0].content[0].input_audio.format is the str 'ogg'; use 'wav' or 'mp3'\n"
     "messages[1].tool_calls is empty; add at least 1, or remove the key\n"
     "messages[1].reasoning is the int 5; use text\n"
     "messages[1].thinking_blocks[0].signature is the int 5; use text\n"
     "messages[2].tool_calls[0].custom is missing; add it\n"
     "messages[2].tool_calls[1].function.name is the int 5; use text\n"
     f"messages[2].tool_calls[1].function.arguments is '{'[' * 60}'; use a string that contains a JSON object\n"
     "messages[2].tool_calls[2].type is the str 'magic'; use 'function' or 'custom'\n"
     "messages[3].tool_call_id is missing; add it\n"
     "tools[0].function.parameters is a list; use a JSON object\n"
     "tools[1].type is the int 5; use 'function'\n"
     "tools[2].name is an unknown key; remove it\n"
     "tools[2].function is missing; add it\n"
     "messages[0].content[0] is audio as 'data:audio/ogg'; use base64 data of type audio/wav, audio/mpeg\n"
     "messages[2].tool_calls[1] makes the call 'call 2.1', which has no result; put its result directly after it\n"
     "messages[2].tool_calls[2] makes the call 'call 2.2', which has no result; put its result directly after it")),
    ("deepseek", turns("U", msg("assistant", "It is", prefix=5, partial=True)),
     ("messages[1].prefix is the int 5; use true or false\n"
     "messages[1].partial is an unknown key; remove it")),
    ("vllm", turns("A"),
     ("messages[0] and all later messages are not user messages; add a user message\n"
     "messages[0] has the role 'assistant', but comes first; begin with a user turn")),
    ("openai-responses", {
        "instructions": 5,
        "input": [
            {"type": "reasoning", "summary": [{"type": "text"}]},
            {"type": "function_call", "call_id": "a\n", "name": "a b", "arguments": "[]"},
            {"type": "function_call_output", "call_id": "a\n", "output": [{"type": "output_text", "text": "a"}]},
            msg("user", [{"type": "input_image", "image_url": 5}, {"type": "input_file", "file_url": 5},
                         {"type": "input_image", "image_url": "data:image/bmp"},
                         {"type": "input_file", "file_data": "data:video/mp4"}]),
            *({"type": 5}, {"type": "function_call_output"}, REASONING, {"role": "human", "content": "a"}),
        ],
        "tools": [{"type": "function", "name": "a b"}, TOOL],
    },
     ("instructions is the int 5; use text\n"
     "input[0].summary[0].type is the str 'text'; use 'summary_text'\n"
     "input[0].summary[0].text is missing; add it\n"
     "input[0].id is missing; add it\n"
     "input[1].arguments is '[]'; use a string that contains a JSON object\n"
     "input[2].output[0].type is the str 'output_text'; "
     "use 'input_text' or 'input_image' or 'input_file' (did you mean 'input_text'?)\n"
     "input[3].content[0].image_url is the int 5; use text\n"
     "input[3].content[1].file_url is the int 5; use text\n"
     "input[4].type is the int 5; use 'message' or 'function_call' or 'function_call_output' or 'reasoning'\n"
     "input[5].call_id is missing; add it\n"
     "input[5].output is missing; add it\n"
     "input[7].role is the str 'human'; use 'user' or 'system' or 'developer' or 'assistant'\n"
     "tools[0].parameters is missing; add it\n"
     "tools[1].function is an unknown key; remove it\n"
     "tools[1].name is missing; add it\n"
     "tools[1].parameters is missing; add it\n"
     "input[1] has the invalid id 'a\\n'; use [^\\x00-\\x1f\\x7f]{1,64}\n"
     "input[1] calls a tool with the invalid name 'a b'; use [a-zA-Z0-9_-]{1,64}\n"
     "input[3].content[2] is image as 'data:image/bmp'; "
     "use a URL or base64 data of type image/png, image/jpeg, image/gif, image/webp\n"
     "input[3].content[3] is file as 'data:video/mp4'; "
     "use a URL or base64 data of type application/pdf, application/*, text/*\n"
     "input[5] is the result of '', but no such call is waiting for a result; "
     "put it directly after its call, or remove it\n"
     "input[6] is a final thinking block; add the content that followed it\n"
     "tools[0].name is 'a b'; use [a-zA-Z0-9_-]{1,64}")),
    ("gemini", contents(
        parts("user", {"inlineData": {"data": "!"}}, {"file_data": {"x": 1}}, 5, {"fileData": {"mimeType": "a/b"}}),
        parts("model", {"functionCall": {"name": "f", "args": []}}, {"text": "a", "mood": 1}),
        parts("user", {"functionResponse": {"name": "f", "id": 5}}), parts("human", {"text": "a"}), tools=[5],
    ),
     ("contents[0].parts[0].inlineData.data is the str '!'; use base64\n"
     "contents[0].parts[1].file_data.x is an unknown key; remove it\n"
     "contents[0].parts[2] is the int 5; use a JSON object\n"
     "contents[1].parts[0].functionCall.args is a list; use a JSON object\n"
     "contents[1].parts[1].mood is an unknown key; remove it\n"
     "contents[2].parts[0].functionResponse.id is the int 5; use text\n"
     "contents[2].parts[0].functionResponse.response is missing; add it\n"
     "contents[3].role is the str 'human'; use 'user' or 'model'\n"
     "tools[0] is the int 5; use a JSON object\n"
     "contents[0].parts[3] is file as 'data:a/b'; use a URL or base64 data of type application/pdf, text/*")),
    ("dashscope", turns(
        "S", msg("user", [{"text": 5}, {}, {"box": 1}]), msg("user", []), calls("c") | {"tool_calls": []}, U
    ),
     ("messages[1].content[0].text is the int 5; use text\n"
     "messages[1].content[1] must have exactly one content key; use one of text, image, audio, video\n"
     "messages[1].content[2].box is an unknown key; remove it\n"
     "messages[2].content is empty; add at least 1, or remove the key\n"
     "messages[3].tool_calls is empty; add at least 1, or remove the key\n"
     "messages[2] has the role 'user', like the turn before it; join both messages")),
    ("ollama", turns(U | {"images": []}, U | {"images": [PNG, "https://a.b/c.png"]},
        msg("assistant", [], tool_calls=[{"function": CALLED}]), msg("tool", 5), msg("tool", "b"),
        msg("assistant", "", tool_calls=[]),
    ),
     ("messages[0].images is empty; add at least 1, or remove the key\n"
     "messages[1].images[1] is the str 'https://a.b/c.png'; use base64\n"
     "messages[2].content is a list; use text\n"
     "messages[2].tool_calls[0].function.arguments is the str '{}'; use a JSON object\n"
     "messages[3].content is the int 5; use text\n"
     "messages[5].tool_calls is empty; add at least 1, or remove the key\n"
     "messages[4] is the result of '', but no such call is waiting for a result; "
     "put it directly after its call, or remove it")),
    ("ollama-generate", {"prompt": "a", "images": []}, "images is empty; add at least 1, or remove the key"),
    ("mistral", turns("S", S,
        msg("user", [{"type": "video_url"}, {"type": "document_url"}, BITMAP_CHUNK]),
        msg("assistant", [{"type": "thinking", "thinking": [5]}, BITMAP_CHUNK]), U,
    ),
     ("messages[2].content[0].type is the str 'video_url'; "
     "use 'text' or 'image_url' or 'input_audio' or 'document_url' or 'file' (did you mean 'image_url'?)\n"
     "messages[2].content[1].document_url is missing; add it\n"
     "messages[3].content[0].thinking[0] is the int 5; use a JSON object\n"
     "messages[3].content[1].type is the str 'image_url'; use 'text' or 'thinking' or 'reference'\n"
     "messages[2].content[0] is a blank text; remove it\n"
     "messages[2].content[2] is image as 'data:image/bmp'; "
     "use a URL or base64 data of type image/png, image/jpeg, image/gif, image/webp\n"
     "messages[3].content[1] is image from the assistant; mistral does not accept it; remove it\n"
     "messages[1] is a second system message; put all system text into the first message")),
    ("mistral", turns("S"), "messages[0] and all later messages are not user messages; add a user message"),
    ("mistral", turns("U", calls("abcdefghi"), msg("tool", "Rain.", tool_call_id="abcdefghi"), "U"),
     "messages[3] is a user turn directly after a tool result; add an assistant turn between them"),
    ("anthropic", turns(
        msg("user", [{"type": "image"}, DOCUMENT_URL]),
        msg("assistant", [{"type": "redacted_thinking"}, {"type": "tool_use", "id": "a.b", "name": "a b"}]),
        msg("user", [RESULT | {"tool_use_id": "a.b", "content": [THOUGHT]}]),
        system=[], tools=[{"name": "a b", "input_schema": {}}, {"type": "bash"}, 5],
    ),
     ("messages[0].content[0].source is missing; add it\n"
     "messages[0].content[1].source.url is missing; add it\n"
     "messages[1].content[0].data is missing; add it\n"
     "messages[1].content[1].input is missing; add it\n"
     "messages[2].content[0].content[0].type is the str 'thinking'; "
     "use 'text' or 'image' or 'document' or 'search_result' or 'container_upload' or 'tool_reference'\n"
     "system is empty; add at least 1, or remove the key\n"
     "tools[1].name is missing; add it\n"
     "tools[2] is the int 5; use a JSON object\n"
     "system has no content; add content, or remove it\n"
     "messages[1].content[1] has the invalid id 'a.b'; use [a-zA-Z0-9_-]{1,64}\n"
     "messages[1].content[1] calls a tool with the invalid name 'a b'; use [a-zA-Z0-9_-]{1,128}\n"
     "tools[0].name is 'a b'; use [a-zA-Z0-9_-]{1,128}")),
    ("anthropic", turns("S", "U"),
     "messages[0] is a system message in the wrong place; put it between a user and an assistant turn"),
    ("anthropic", turns("U", "S", "U"),
     "messages[1] is a system message in the wrong place; put it between a user and an assistant turn"),
    ("anthropic", turns(msg("user", [TEXT | {"cache_control": {"type": "ephemeral", "ttl": "9h"}}])),
     "messages[0].content[0] has a breakpoint with an unknown lifetime; use 5m or 1h"),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "payload", "lines"), WRONG)
def test_violation_is_reported_with_its_path_and_its_fix(provider: str, payload: Payload, lines: str) -> None:
    assert complaints(provider, payload) == lines.splitlines()


def leads_somewhere(payload: Any, line: str) -> bool:
    """Whether a reported path exists in the payload; its last key may be missing."""
    steps = [int(at) if at else key for at, key in re.findall(r"\[(\d+)\]|([^.\[\]]+)", line.partition(" ")[0])]
    target = payload
    for step in steps[:-1]:
        target = target[step]
    return isinstance(steps[-1], str) or len(target) > steps[-1]


@pytest.mark.parametrize(("provider", "label", "payload"), BROKEN, ids=[f"{who}: {label}" for who, label, _ in BROKEN])
def test_reported_paths_exist_in_the_broken_payload(provider: str, label: str, payload: Payload) -> None:
    found = complaints(provider, payload)
    assert found, label
    assert all(leads_somewhere(payload, line) for line in found), found


CODE = [{"executableCode": {"language": "PYTHON", "code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}]
SEARCH = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
    TEXT | {"citations": [{"type": "web_search_result_location", "cited_text": "Rain.", "url": "https://a.b"}]},
]
DOCUMENT = {"type": "document", "title": "Rain", "context": "A poem.", "citations": {"enabled": True}}
SOURCES = {"type": "content", "content": [TEXT]}, {"type": "file", "file_id": "f"}
THOUGHTS = {"type": "thinking", "thinking": [TEXT], "signature": None, "closed": True}
LOCAL = msg("assistant", "", thinking="Hm.", tool_calls=[{"function": {"name": "weather", "arguments": {}}}])
SQL = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
WEB = {"type": "builtin_function", "function": {"name": "$web_search"}}
STRANGERS: dict[str, dict[str, Payload]] = {
    "openai": {
        "a refusal": turns("U", msg("assistant", None, refusal="No."), "U"),
        "a developer with a name": turns(S | {"role": "developer", "name": "boss"}, U | {"name": "Ann"}),
        "several texts of everybody": turns(
            *(msg(role, [TEXT, TEXT]) for role in ("developer", "system", "user", "assistant")),
            calls("c1"),
            msg("tool", [TEXT, TEXT], tool_call_id="c1"),
        ),
        "settings of a request": turns("U", model="gpt-5", temperature=1, tool_choice="auto", stream=True),
        "an answer that was spoken": turns("U", msg("assistant", None, audio={"id": "audio_1"}), "U"),
        "a call of a custom tool": turns(
            "U", msg("assistant", None, tool_calls=[SQL]), msg("tool", "1", tool_call_id="c1"), tools=[SQL]
        ),
    },
    "anthropic": {
        "cache breakpoints": turns(
            msg("user", [CACHED]),
            system=[CACHED_LONG],
            tools=[{"name": "a", "input_schema": SCHEMA, "cache_control": {**SHORT, "ttl": "1h"}}],
        ),
        "server tools and citations": turns(
            "U", msg("assistant", SEARCH), "U", tools=[{"type": "web_search_20250305", "name": "web_search"}]
        ),
        "system text as a string": turns("UA", system="Be brief.", max_tokens=8),
        "a result that is an error": turns(
            "UT", msg("user", [RESULT | {"is_error": True, "cache_control": SHORT}, TEXT])
        ),
        "a result without content": turns("UT", msg("user", [{"type": "tool_result", "tool_use_id": "toolu_1"}])),
        "a document of text": turns(
            msg("user", [DOCUMENT | {"source": {"type": "text", "media_type": "text/plain", "data": "Drip."}}])
        ),
        "documents of blocks and of files": turns(msg("user", [DOCUMENT | {"source": source} for source in SOURCES])),
    },
    "gemini": {
        "the keys of the REST API": contents(
            parts("user", {"text": "See:"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}),
            parts("model", {"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "c2ln"}),
            parts("user", {"functionResponse": {"name": "weather", "response": {"sky": "grey"}}}),
            systemInstruction={"parts": [{"text": "Be brief."}]},
            tools=[{"functionDeclarations": [{"name": "weather"}]}, {"googleSearch": {}}],
            generationConfig={"temperature": 0},
        ),
        "contents without a role": {"contents": [{"parts": [{"text": "Is it raining?"}]}]},
        "a video of YouTube": contents(
            parts("user", {"fileData": {"fileUri": "https://youtu.be/x"}, "videoMetadata": {"fps": 1}})
        ),
        "executable code": contents("u", parts("model", *CODE, {"text": "1."}), "u", tools=[{"codeExecution": {}}]),
        "a signature that came last": contents(
            "u", parts("model", {"text": "It is."}, {"text": "", "thoughtSignature": "c2ln"}), "u"
        ),
    },
    "openai-responses": {
        "a plain input with built-in tools": {
            "input": "Is it raining?",
            "instructions": "Be brief.",
            "tools": [{"type": "web_search"}],
        },
        "an empty input": {"input": ""},
        "a thought before a search": items(
            "U", REASONING, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, "A", "U"
        ),
        "outputs of calls that the server remembers": items("o", previous_response_id="resp_1"),
        "outputs of calls in a stored conversation": items("o", conversation="conv_1"),
    },
    "dashscope": {
        "reasoning beside an answer": turns("SU", A | {"reasoning_content": "Hm."}, "U"),
        "results with names": turns("UC", *(PIECES[one] | {"name": "weather"} for one in "12")),
    },
    "dashscope-multimodal": {
        "frames of a video": turns(
            msg("user", [{"video": ["https://a.b/1.jpg", "https://a.b/2.jpg"], "fps": 2}, {"text": "What is it?"}])
        )
    },
    "ollama": {
        "pictures beside the text": turns(U | {"images": [PNG, PNG]}, A | {"thinking": "Hm."}, "U"),
        "results told by the name of the tool": turns(
            "U", LOCAL, {"role": "tool", "tool_name": "weather", "content": "Rain."}, options={"seed": 1}
        ),
    },
    "deepseek": {
        "reasoning before calls": turns(
            "U", PIECES["C"] | {"reasoning_content": "Hm."}, *"12", model="deepseek-reasoner"
        )
    },
    "ollama-generate": {"settings of Ollama": {"prompt": "Is it", "suffix": "?", "context": [1], "images": [PNG]}},
    "litellm": {"signed thoughts": turns("U", A | {"thinking_blocks": [THOUGHT], "reasoning_content": "Hm."}, "U")},
    "mistral": {
        "chunks of Mistral's own": turns(
            msg("user", [{"type": "file", "file_id": "f"}, TEXT]),
            msg("assistant", [THOUGHTS, TEXT, {"type": "reference", "reference_ids": [1]}]),
            msg(
                "user",
                [{"type": "image_url", "image_url": "https://a.b/c"}, {"type": "input_audio", "input_audio": PNG}],
            ),
            *(calls("abcdefgh1") | {"content": []}, msg("tool", [], tool_call_id="abcdefgh1")),
        )
    },
    "moonshot": {
        "a refusal among parts": turns("U", msg("assistant", [{"type": "refusal", "refusal": "No."}]), "U"),
        "a video of Kimi": turns(msg("user", [{"type": "video_url", "video_url": {"url": "ms://f1"}}, TEXT])),
        "Kimi's own tools": turns("U", tools=[WEB]),
    },
    "vllm": {
        "a sound by address": turns(
            msg("user", [{"type": "audio_url", "audio_url": {"url": "https://a.b/c.wav"}}, TEXT])
        )
    },
    "zhipu": {"Zhipu's own tools": turns("U", tools=[{"type": "web_search", "web_search": {"enable": True}}])},
}
EXPLICIT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
CODE_TOOLS = ("code_execution", "bash_code_execution", "text_editor_code_execution")
# A payload of each form with all keys that its messages and tools can have.
FULL: dict[str, Payload] = {
    "openai": turns(
        S | {"name": "boss"},
        msg("user", [
            CACHED | EXPLICIT,
            IMAGE | {"image_url": {"url": "https://a.b/c", "detail": "low"}} | EXPLICIT,
            {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}, "cache_control": SHORT},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,eA==", "filename": "a"}} | EXPLICIT,
            {"type": "file", "file": {"file_id": "file-1"}},
        ]),
        calls("c1") | dict.fromkeys(("reasoning_content", "reasoning", "refusal", "thinking"), "Hm.")
        | dict.fromkeys(("audio", "function_call", "annotations"))
        | {"name": "bot", "thinking_blocks": [THOUGHT | {"cache_control": SHORT}, REDACTED | {"cache_control": SHORT}]},
        msg("tool", "Rain.", tool_call_id="c1", tool_name="weather", name="weather"),
        calls("c2") | {"tool_calls": [{"id": "c2", "index": 0, "extra_content": {}, "function": CALLED}]},
        msg("tool", "Rain.", tool_call_id="c2"),
        tools=[{"type": "function", "function": CALLED_TOOL, "cache_control": SHORT}],
    ),
    "anthropic": turns(
        msg("user", [
            TEXT | {"cache_control": None, "citations": []},
            {"type": "image", "source": {"type": "file", "file_id": "f"}, "transformations": [], "cache_control": None},
            *({"type": kind} for kind in ("search_result", "container_upload", "new_kind")),
        ]),
        msg("assistant", [
            *(each | {"more": 1} for each in (THOUGHT, REDACTED, TEXT)), USE | {"cache_control": SHORT, "caller": {}},
            *({"type": f"{server}_tool_result"} for server in ("web_search", "web_fetch", "tool_search", *CODE_TOOLS)),
            {"type": "container_upload"},
        ]),
        msg("user", [RESULT | {"toolset_name": "t", "content": [{"type": "tool_reference", "tool_name": "f"}, TEXT]}]),
        tools=[{"type": "custom", "name": "a", "input_schema": SCHEMA, "description": "d", "strict": True}
               | dict.fromkeys(("input_examples", "defer_loading", "allowed_callers", "eager_input_streaming"))],
    ),
    "gemini": contents(
        parts("user", {"text": "a", "thought": False, "video_metadata": {}},
              {"inline_data": {"mime_type": "image/png", "data": PNG, "display_name": "a"}},
              {"fileData": {"mimeType": "image/png", "fileUri": "gs://a", "displayName": "a"}},
              {"file_data": {"mime_type": "image/png", "file_uri": "gs://a"}}),
        parts("model", {"function_call": {"name": "f", "id": "a", "args": {}}, "thought_signature": "c2ln"},
              *({key: {}} for key in ("executable_code", "code_execution_result", "new_kind"))),
        parts("user", {"function_response": {"name": "f", "response": {}, "id": "a", "parts": [{}]}
                       | dict.fromkeys(("will_continue", "scheduling"))}),
        system_instruction="Be brief.",
    ),
    "openai-responses": items(
        msg("developer", "a", type="message", id="m", status="completed", phase="x"),
        msg("user", [
            INPUT_TEXT | EXPLICIT,
            {"type": "input_image", "image_url": None, "file_id": "f", "detail": "low"} | EXPLICIT,
            {"type": "input_file", "file_data": "data:application/pdf;base64,eA==", "filename": "a", "detail": "low"},
            {"type": "input_file", "file_url": "https://a.b/c.pdf", "file_id": None, "file_data": None} | EXPLICIT,
        ]),
        REASONING | {"encrypted_content": None, "content": [], "status": None, "more": 1},
        msg("assistant", [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                          {"type": "refusal", "refusal": "No."}], phase="x", more=1),
        *(PIECES[piece] | {"id": None, "status": None, "caller": {}, "namespace": "n"} | more
          for piece, more in (("c", {"more": 1}), ("o", {"name": "f", "output": [INPUT_TEXT]}))),
        tools=[{"type": "function", "name": "f", "parameters": None, "strict": True, "description": None,
                "defer_loading": True, "allowed_callers": []}],
    ),
    "dashscope": turns(msg("user", [
        {kind: "https://a.b/c", "cache_control": SHORT}
        | dict.fromkeys(("fps", "max_frames", "min_pixels", "max_pixels", "total_pixels"), 1)
        for kind in ("image", "audio", "video")
    ] + [{"text": None}])),
}  # fmt: skip
FOREIGN = [(provider, label, payload) for provider, made in STRANGERS.items() for label, payload in made.items()]
FOREIGN += [(provider, "all keys", payload) for provider, payload in FULL.items()]


@pytest.mark.parametrize(
    ("provider", "payload"), [case[::2] for case in FOREIGN], ids=[f"{who}: {label}" for who, label, _ in FOREIGN]
)
def test_payload_that_real_servers_accept_is_valid(provider: str, payload: Payload) -> None:
    assert complaints(provider, payload) == []


@pytest.mark.slow
@pytest.mark.parametrize("style", get_args(HistoryStyle))
@pytest.mark.parametrize("provider", PROVIDERS)
def test_formatted_payloads_of_every_history_style_are_valid(provider: str, style: HistoryStyle) -> None:
    formatter = MultiAgentFormatter(provider, history_style=style)
    formatter.validate(formatter.format({"role": "user", "content": "Hi."}))
    formatted = 0
    for seed in range(60):
        messages = Maker(Random(seed)).conversation()  # noqa: S311 - chance is what is wanted
        try:
            payload = formatter.format(*messages)
        except FormatError as error:
            if "no message has any content" not in str(error):
                raise
        else:
            formatter.validate(payload)
            formatted += 1
    assert formatted > 50


KEYS = (
    "type role content text id name source images image tools tool_calls function arguments input output call_id "
    "tool_use_id url data media_type parts function_call inline_data mime_type cache_control prompt_cache_breakpoint "
    "mode explicit ttl 5m 1h user assistant system tool model image_url tool_use tool_result thinking document video "
    "base64 reasoning function_call_output message executableCode"
)
WORDS = st.sampled_from(KEYS.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.just(10**4290) | st.floats() | st.text(st.characters()) | WORDS
GARBAGE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
WHOLE = [(provider, payload) for provider, _, payload in (*FOREIGN, *BROKEN)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_integer_too_large_to_print_is_refused(provider: str) -> None:
    formatter, huge = ChatFormatter(provider), 10**5000
    key = formatter.profile.form.messages_key
    part = {"type": "text", "text": huge, "parts": huge, "image_url": {"url": huge}}
    for messages in (huge, [huge], [{"role": huge, "content": [part], "parts": [part], "tool_calls": [{"id": huge}]}]):
        with pytest.raises(FormatError, match="would reject"):
            formatter.validate({key: messages, "tools": [{"type": huge, "name": huge}]})


@pytest.mark.slow
@given(st.data())
def test_random_values_at_any_path_are_accepted_or_refused_with_existing_paths(data: st.DataObject) -> None:
    provider, good = data.draw(st.sampled_from(WHOLE), "payload")
    payload = deepcopy(dict(good))
    for _ in range(data.draw(st.integers(1, 3), "mutations")):
        path = data.draw(st.sampled_from(paths(payload)), "place")
        target: Any = payload
        for key in path:
            outer, target = target, target[key]
        garbage = data.draw(GARBAGE, "garbage")
        if isinstance(target, dict) and data.draw(st.booleans(), "add a key"):
            target[data.draw(WORDS, "key")] = garbage
        elif isinstance(target, list) and data.draw(st.booleans(), "add an item"):
            target.insert(data.draw(st.integers(0, len(target)), "index"), garbage)
        elif path:
            outer[path[-1]] = garbage
    assert all(leads_somewhere(payload, line) for line in complaints(provider, payload))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("description", "payload"),
    [("None", None), ("a list", []), ("the str 'Hi.'", "Hi."), ("the int 5", 5), ("True", True)],
)
def test_payload_that_is_not_an_object_is_refused(provider: str, description: str, payload: Any) -> None:
    assert complaints(provider, payload) == [f"the payload is {description}; use a JSON object"]


def test_blank_responses_api_texts_are_refused_by_a_profile_without_empty_text() -> None:
    message = r"\n  instructions is a blank text; remove it\n  input is a blank text; remove it$"
    with pytest.raises(FormatError, match=message):
        ChatFormatter(OPENAI_RESPONSES.but(empty_text=False)).validate({"instructions": " ", "input": ""})


def test_model_that_is_not_a_string_has_no_validation_rules() -> None:
    assert not complaints("anthropic", turns(U, model=5))


@pytest.mark.parametrize("messages", [None, 5, "", {}, [], [None], [[]]])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_payload_of_system_text_without_messages_is_refused(provider: str, messages: object) -> None:
    # With system text, the type of the messages was not checked.
    key = ChatFormatter(provider).profile.form.messages_key
    payload = {key: messages, "system": "s", "instructions": "s", "system_instruction": "s"}
    if isinstance(messages, str):
        payload[key] = 5
    with pytest.raises(FormatError, match="would reject"):
        ChatFormatter(provider).validate(payload)
