"""Logs of calls: the hook that writes them, and the formats that are read."""

import json
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import CallLog, CharTokenCounter, FormatError, Msg, Prompty
from lazyprompt._base.secret import SecretText
from lazyprompt.caching import read_calls, simulate
from lazyprompt.formatters.reply import Reply
from lazyprompt.modules.telemetry import CallRecord
from modules.online_scenes import ways
from modules.talks import module_of
from support.model_server.server import Answer, ModelServer
from support.windows import PERMISSIONS

PAYLOAD = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]}


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def attribute(key: str, value: object) -> dict[str, Any]:
    """An attribute as OTLP has it."""
    return {"key": key, "value": otlp_value(value)}


def otlp_value(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [attribute(key, each) for key, each in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp_value(each) for each in value]}}
    kinds = {int: ("intValue", str(value)), float: ("doubleValue", value), bool: ("boolValue", value)}
    return {} if value is None else dict([kinds.get(type(value), ("stringValue", value))])


def messages_json(text: str) -> str:
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


SPAN = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-x",
    "gen_ai.conversation.id": "c1",
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be kind."}]),
    "gen_ai.input.messages": messages_json("Hi"),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Ho"}]}]),
}


def test_calls_read_from_a_log_equal_the_written_calls(tmp_path: Path) -> None:
    log = pickle.loads(pickle.dumps(CallLog(tmp_path / "calls.jsonl", conversation="c1")))  # noqa: S301 - our own
    payload = {**PAYLOAD, "tools": [{"name": SecretText("s3cret", "${env:KEY}")}]}
    reply = Reply(Msg("assistant", "Ho", "assistant"), {})
    log(CallRecord("openai", "gpt-x", payload, {"temperature": 1}, reply, None, 2.0, streamed=False))
    log(CallRecord("openai", "gpt-x", PAYLOAD, {}, None, ValueError("no"), 2.0, streamed=False))
    first, second = read_calls(log.path)
    assert first.prompt == {**PAYLOAD, "tools": [{"name": "${env:KEY}"}]}
    assert (first.conversation, first.model) == ("c1", "gpt-x")
    assert first.time is not None
    assert second.prompt == PAYLOAD


WITH_VARIABLES = """\
---
model: {id: m, provider: openai}
inputs:
  code: {kind: string, default: "${env:SHOP_KEY}"}
  header: {kind: string, default: "Bearer ${env:SHOP_KEY}"}
  q: {kind: string}
---
system:
The code is {{code}}, the header {{header}}; never tell them.
user:
{{q}} in {{code}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["online", "local"])
@pytest.mark.parametrize("secret", ['s3cret-äöü-"quoted"', "sk-0123456789abcdef", "ab+/c=d&e f"])
def test_a_call_log_masks_environment_variables_in_prompts_and_responses(
    kind: str, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default value from an environment variable was logged, in the prompt and in the response."""
    monkeypatch.setenv("SHOP_KEY", secret)
    (tmp_path / "a.prompty").write_text(WITH_VARIABLES, encoding="utf-8")
    log = CallLog(tmp_path / "calls.jsonl")
    with ModelServer(judges=False) as server:
        server.answer = Answer(f"The code is {secret}.")
        module = module_of(kind, server, hooks=[log]).prompt(Prompty.load(tmp_path / "a.prompty"))
        for way in ways(module, {"q": "Tell me"}):
            assert str(way()) == f"The code is {secret}."
        module.close()
        assert secret in str(server.seen[0].body)  # it is sent
    shown = [json.dumps(json.loads(line), ensure_ascii=False) for line in log.path.read_text("utf-8").splitlines()]
    assert len(shown) == 4
    for line in shown:
        assert secret not in line
        assert json.dumps(secret, ensure_ascii=False)[1:-1] not in line
        assert "The code is ***" in line
        assert "Tell me" in line


def test_a_call_log_masks_environment_values_inside_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whole texts were masked: a value that a template had inserted into a message was logged."""
    monkeypatch.setenv("LOG_KEY", "hunter2-hunter2")
    file = Prompty.loads("---\ninputs: {a: {default: '${env:LOG_KEY}'}}\n---\nuser:\nUse k={{ a }}.\n")
    log = CallLog(tmp_path / "calls.jsonl")
    payload = file.generate_prompt(return_dict=True)
    reply = Reply(Msg("assistant", "It is hunter2-hunter2.", "assistant"), {})
    log(CallRecord("openai", "m", payload, {}, reply, None, 1.0, streamed=False, secrets=file.prompter.secrets))
    assert "hunter2" in str(payload)
    assert "hunter2" not in log.path.read_text()
    assert "***" in log.path.read_text()


@PERMISSIONS
def test_a_call_log_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.jsonl")
    log(CallRecord("openai", "gpt-x", PAYLOAD, {}, None, None, 2.0, streamed=False))
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "line",
    [
        PAYLOAD,
        {"payload": PAYLOAD},
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": PAYLOAD},
        {"custom_id": "1", "params": PAYLOAD},
        {"key": "1", "request": PAYLOAD},
    ],
)
def test_payloads_are_read_from_plain_lines_and_batch_files(tmp_path: Path, line: object) -> None:
    (call,) = read_calls(write_lines(tmp_path / "calls.jsonl", line))
    assert call.prompt == PAYLOAD


NOON = {"2026-11-23T10:00:00+00:00": 1_795_428_000.0, "1795428000000000000": 1_795_428_000.0}


@pytest.mark.parametrize(("time", "seconds"), [(5, 5), ("7", 7), (1e14, 1e14), (2e14, 2e5), *NOON.items(), ([], None)])
def test_times_are_read_as_seconds_nanoseconds_or_dates(time: object, seconds: float | None) -> None:
    (call,) = read_calls([json.dumps({"payload": PAYLOAD, "time": time, "conversation": 3, "model": "m"})])
    assert (call.time, call.conversation, call.model) == (seconds, "3", "m")


def test_spans_of_opentelemetry_exporters_are_read(tmp_path: Path) -> None:
    line = {"name": "chat gpt-x", "start_time": "2026-11-23T10:00:00Z", "attributes": SPAN}
    event = {"attributes": {**SPAN, "gen_ai.operation.name": "text_completion"}}
    other = {"name": "GET /", "attributes": {"http.method": "GET"}}
    bare: dict[str, Any] = {"name": "chat", "start_time": "2026-11-23T10:00:00Z", "attributes": {}, "events": [event]}
    generated = {**SPAN, "gen_ai.operation.name": "generate_content"}
    otlp = {
        "startTimeUnixNano": str(1_795_428_000 * 10**9),
        "attributes": [attribute(key, value) for key, value in generated.items()],
    }
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [otlp, {"attributes": [attribute("a", 1)]}]}]}]}
    lines = read_calls(write_lines(tmp_path / "spans.jsonl", line, other, bare, document))
    (tmp_path / "spans.json").write_text(json.dumps([document], indent=2), encoding="utf-8")
    # As the console exporter of the SDK writes them, one after the other.
    console = "\n".join(json.dumps(each, indent=4) for each in (other, line, bare))
    (tmp_path / "console.txt").write_text(f"  {console}\n", encoding="utf-8")
    calls = [*lines, *read_calls(tmp_path / "spans.json"), *read_calls(tmp_path / "console.txt")]
    assert len(calls) == 6
    for call in calls:
        assert call.prompt == PAYLOAD
        assert (call.time, call.conversation, call.model) == (1_795_428_000, "c1", "gpt-x")


def test_tool_calls_and_tool_definitions_of_spans_are_kept(tmp_path: Path) -> None:
    call = {"type": "tool_call", "id": "1", "name": "find", "arguments": {"x": [1, 0.5, False, None, {}]}}
    parts = [{"type": "text", "content": "I look."}, {"type": "text"}, call]
    messages: list[dict[str, Any]] = [{"role": "assistant", "parts": parts}, {"parts": []}]
    given = {**SPAN, "gen_ai.input.messages": messages, "gen_ai.tool.definitions": '[{"name": "find"}]'}
    spans = [{"attributes": each} for each in (given, [attribute(key, value) for key, value in given.items()])]
    found, other = read_calls(write_lines(tmp_path / "a.jsonl", *spans))
    assert other == found
    blocks = [{"type": "text", "text": "I look."}, {"type": "text", "text": ""}, call]
    assert found.prompt == {
        "tools": [{"name": "find"}],
        "messages": [PAYLOAD["messages"][0], {"role": "assistant", "content": blocks}, {"role": "", "content": []}],
    }
    assert simulate([found], "openai", CharTokenCounter()).calls[0].total > 7


INVALID = "a.jsonl:1: not a valid model call:"
EXPECTED = "a.jsonl:1: not a payload; expected one of messages, contents, input, prompt, found"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"messages": []}\n{"messages"\n', "a.jsonl:2: not a valid JSON line"),
        ("hello\nyou\n", "a.jsonl:1: neither this line nor the whole file is valid JSON"),
        ("3\n", "a.jsonl:1: a call must be an object, not 3"),
        ("[[3]]\n", "a.jsonl:1[0][0]: a call must be an object, not 3"),
        ('{"a": "", "b": ""}\n', f"{EXPECTED} a, b"),
        ("{}\n", f"{EXPECTED} no keys"),
        (json.dumps({"name": "chat x", "attributes": {"gen_ai.operation.name": "chat"}}), "no gen_ai.input.messages"),
        ('{"payload": {"messages": []}, "time": "noon"}\n', f"{INVALID} ValueError: Invalid isoformat"),
        ('{"attributes": [1]}\n', f"{INVALID} TypeError"),
        (json.dumps({"attributes": {**SPAN, "gen_ai.input.messages": "Hi"}}), f"{INVALID} JSONDecode"),
        (json.dumps({"attributes": {**SPAN, "gen_ai.input.messages": "[" * 100_000}}), f"{INVALID} RecursionError"),
        ('{"resourceSpans": [3]}\n', f"{INVALID} AttributeError"),
        ("[" * 100_000, "a.jsonl:1: neither this line nor the whole file is valid JSON"),
    ],
)
def test_error_for_an_invalid_call_names_the_line(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match="a.jsonl") as error:
        list(read_calls(tmp_path / "a.jsonl"))
    assert fault in str(error.value)


def test_read_calls_accepts_an_iterable_of_lines(tmp_path: Path) -> None:
    lines = [json.dumps(PAYLOAD), "", json.dumps({"payload": PAYLOAD})]
    assert [call.prompt for call in read_calls(lines)] == [PAYLOAD, PAYLOAD]
    assert [call.prompt for call in read_calls(json.dumps([PAYLOAD], indent=1).splitlines(keepends=True))] == [PAYLOAD]
    with pytest.raises(FormatError, match="line 2: not a valid JSON line"):
        list(read_calls([json.dumps(PAYLOAD), "no"]))
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match=r"a.jsonl: not valid UTF-8"):
        list(read_calls(tmp_path / "a.jsonl"))
