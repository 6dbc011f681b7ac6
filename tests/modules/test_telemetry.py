"""Telemetry of calls: records for hooks, and OpenTelemetry spans, checked with its SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel

from lazyprompt import CallLog, CallRecord, ChatPrompter, ModuleError, Msg, PromptFile, PromptLibrary, Prompty, Reply
from lazyprompt.modules import telemetry
from lazyprompt.modules.clients._base import Request
from modules.online_scenes import ASKED, SOME, cancel_call, common_for, module, run_in_loop, ways
from support.client_scenes import KEY, TIMEOUT
from support.model_server.server import Answer, Cut, ModelServer, Slow, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

SECRETS = ("Dutch", "ping", "the answer", "Zürich")
ANSWER = Answer(
    "the answer", thinking="hm", calls=(("c1", "weather", {"city": "Zürich"}),), prompt_tokens=7, completion_tokens=5
)


class City(BaseModel):
    name: str


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The exported spans; the global provider of OpenTelemetry stays unchanged."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", lambda: provider.get_tracer("lazyprompt"))
    yield exporter
    provider.shutdown()


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


# Hooks.


@SOME
def test_each_call_passes_one_record_to_each_hook(server: ModelServer, source: str) -> None:
    records: list[CallRecord] = []
    more: list[CallRecord] = []
    model = module(server, source, hooks=[records.append, more.append], max_tokens=50)
    replies = [way() for way in ways(model, ASKED)]
    dry = model.payload(ASKED)
    assert records == more
    for record, reply, streamed in zip(records, replies, (False, True, False, True), strict=True):
        assert record.source == source
        assert (record.model, record.streamed, record.error) == (model.model, streamed, None)
        assert record.reply is reply
        assert {"model": record.model, **record.payload, **record.params} == dry
        assert 0 < record.seconds < TIMEOUT
        assert KEY not in repr(record)


@SOME
def test_record_of_a_failed_call_has_the_error_and_the_received_part(server: ModelServer, source: str) -> None:
    records: list[CallRecord] = []
    model = module(server, source, hooks=[records.append])
    server.faults = lambda _: Status(400)
    for way in ways(model, ASKED):
        with pytest.raises(ModuleError) as caught:
            way()
        assert records[-1].error is caught.value
        assert records[-1].reply is None
    server.faults = lambda _: Cut(6)
    with pytest.raises(ModuleError) as caught:
        list(model.stream(ASKED))
    assert records[-1].reply is caught.value.partial is not None
    server.faults = []
    server.answer = Answer("", completion_tokens=0)
    with pytest.raises(ModuleError) as caught:
        model(ASKED)
    assert (records[-1].error, records[-1].reply) == (caught.value, "")
    server.answer = Answer("no JSON")
    with pytest.raises(ModuleError):
        model(ASKED, response_format=City)
    assert records[-1].reply == "no JSON"
    assert len(records) == 7


@SOME
def test_cancelled_and_closed_calls_are_recorded(server: ModelServer, source: str) -> None:
    records: list[CallRecord] = []
    model = module(server, source, hooks=[records.append])
    with model.stream(ASKED) as stream:
        next(stream.deltas())
    server.faults = [Slow(first=TIMEOUT)]

    async def cancel_all() -> None:
        await cancel_call(model, server)
        async with model.astream(ASKED) as astream:
            async for _ in astream.deltas():
                break

    run_in_loop(model, cancel_all())
    assert [type(record.error) for record in records] == [GeneratorExit, asyncio.CancelledError, GeneratorExit]
    assert [record.streamed for record in records] == [True, False, True]
    assert records[1].reply is None
    for record in records[::2]:
        assert isinstance(record.reply, Reply)
        assert record.reply.finish is None


@pytest.mark.slow
@SOME
def test_call_with_retries_is_one_record(server: ModelServer, source: str) -> None:
    records: list[CallRecord] = []
    server.faults = [Status(500, retry_after=0.2), Status(429, retry_after=0.01)]
    module(server, source, retries=2, hooks=[records.append])(ASKED)
    assert [record.error for record in records] == [None]
    assert records[0].seconds >= 0.2
    assert len(server.seen) == 3


def test_call_that_is_not_sent_is_not_recorded(server: ModelServer) -> None:
    records: list[CallRecord] = []
    model = module(server, "openai", hooks=[records.append])
    model.payload(ASKED)
    model.stream(ASKED)
    with pytest.raises(KeyError):
        model({"input": "no language"})
    assert not records


@SOME
def test_failing_hook_is_logged_and_does_not_affect_the_call(
    server: ModelServer, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    records: list[CallRecord] = []

    def fail(record: CallRecord) -> None:
        raise ValueError(f"of the hook, {record.source}")

    model = module(server, source, hooks=[fail, records.append])
    assert [str(way()) for way in ways(model, ASKED)] == ["the answer"] * 4
    server.faults = [Status(400)]
    with pytest.raises(ModuleError, match="the server would not"):
        model(ASKED)
    with model.stream(ASKED) as stream:
        next(stream.deltas())
    assert len(records) == 6
    told = [record for record in caplog.records if record.name == "lazyprompt"]
    assert [record.levelno for record in told] == [logging.ERROR] * 6
    assert all(f"of the hook, {source}" in str(record.exc_info) for record in told)
    assert KEY not in caplog.text


def test_call_log_has_one_line_for_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.modules.telemetry.time.time", lambda: 100.5014)
    path, payload = tmp_path / "calls.jsonl", {"messages": [{"role": "user", "content": "Grüße \ud800"}]}
    params: dict[str, Any] = {"tools": [{"name": "f"}], "response_format": {"type": "text"}, "cache_control": {"a": 1}}
    params |= {"seed": 1, "prompt_cache_options": {"b": 1}}
    reply = Reply(Msg("assistant", "Hello", "assistant", usage={"prompt_tokens": 1}), {})
    log = CallLog(str(path), conversation="c")
    log(CallRecord("openai", "m", payload, params, reply, None, 0.25, streamed=False))
    CallLog(path)(CallRecord("openai", "m", payload, {}, None, ValueError("no"), 2.0, streamed=True))
    unmasked = CallRecord("openai", "m", {}, {}, None, None, 0.25, streamed=False)
    assert (unmasked.secrets, CallLog(path).conversation) == ((), None)
    assert repr(log) == f"CallLog({str(path)!r})"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text("utf-8")
    assert text.count("Grüße \\ud800") == 2
    del params["seed"]
    about = {"source": "openai", "model": "m"}
    answer = {"reply": "Hello", "usage": {"prompt_tokens": 1}}
    assert [json.loads(line) for line in text.splitlines()] == [
        {"time": 100.251, **about, "conversation": "c", "payload": {**payload, **params}, **answer},
        {"time": 98.501, **about, "payload": payload},
    ]


def test_keyboard_interrupt_in_a_hook_is_raised(server: ModelServer) -> None:
    def end(_: CallRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module(server, "openai", hooks=[end])(ASKED)


# Spans.

PROVIDERS = {"gemini": "gcp.gemini"}


@SOME
def test_each_call_is_a_genai_span(server: ModelServer, source: str, spans: InMemorySpanExporter) -> None:
    params = {**common_for(source), "stop": "END"}
    for way in ways(module(server, source), ASKED, **params):
        way()
    found = spans.get_finished_spans()
    assert len(found) == 4
    for at, span in enumerate(found):
        assert (span.name, span.kind, span.status.status_code) == ("chat m", SpanKind.CLIENT, StatusCode.UNSET)
        requested = {f"gen_ai.request.{name}": value for name, value in params.items() if name != "stop"}
        usage = {} if source == "openai" and at % 2 else {"input_tokens": 7, "output_tokens": 5}
        assert attributes(span) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(source, source),
            "gen_ai.request.model": "m",
            **requested,
            "gen_ai.request.stop_sequences": ("END",),
            "gen_ai.response.model": "m",
            "gen_ai.response.finish_reasons": ("tool_calls",),
            **{f"gen_ai.usage.{name}": count for name, count in usage.items()},
        }


@pytest.mark.parametrize(
    ("source", "provider"),
    [("xai", "x_ai"), ("moonshot", "moonshot_ai"), ("gemini", "gcp.gemini"), ("mistral", "mistral")],
)
def test_span_attributes_have_the_genai_names(spans: InMemorySpanExporter, source: str, provider: str) -> None:
    same = {"temperature": 1, "top_p": 2, "top_k": 3, "seed": 4, "frequency_penalty": 5, "presence_penalty": 6}
    limits = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
    reply = Reply(Msg("assistant", "Hello", "assistant", usage={"prompt_tokens": 1, "total_tokens": 1}), {})
    for limit, stop in zip(limits, ("stop", "stop_sequences") * 2, strict=True):
        for options in (False, True):
            params: dict[str, Any] = {**same, limit: 7, stop: ["END"], "user": "me"}
            request = Request("m", {"prompt": "n = "}, {"options": params} if options else params)
            with telemetry.open_span(source, request) as record:
                record(reply, ModuleError("no", kind="cut"))
    expected: dict[str, Any] = {**same, "model": "m", "max_tokens": 7, "stop_sequences": ("END",)}
    assert len(spans.get_finished_spans()) == 8
    for span in spans.get_finished_spans():
        assert (span.name, span.kind, span.status.description) == ("text_completion m", SpanKind.CLIENT, "cut")
        assert attributes(span) == {
            "error.type": "cut",
            "gen_ai.usage.input_tokens": 1,
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": provider,
            **{f"gen_ai.request.{name}": value for name, value in expected.items()},
        }


def test_span_has_name_and_version_of_a_prompt_from_a_file_or_library(
    server: ModelServer, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    body = "user:\nWhat is the capital of France?\n"
    files = {
        "support/refund@1.2.0.prompty": body,
        "named.prompty": f"---\nname: capitals\nmetadata:\n  version: 3\n---\n{body}",
        "plain.yaml": "instruction: Be kind.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    prompts = (
        PromptLibrary(tmp_path).get("support/refund"),
        Prompty.load(tmp_path / "named.prompty"),
        PromptFile.load(tmp_path / "plain.yaml").prompter.with_system("Hi."),
        ChatPrompter("Be kind."),
    )
    for prompt in prompts:
        module(server, "openai").prompt(prompt)(None if isinstance(prompt, Prompty) else "Hi.")
    found = [attributes(span) for span in spans.get_finished_spans()]
    keys = ("gen_ai.prompt.name", "gen_ai.prompt.version")
    assert [tuple(each.get(key) for key in keys) for each in found] == [
        ("support/refund", "1.2.0"),
        ("capitals", "3"),
        ("plain", None),
        (None, None),
    ]


@SOME
def test_span_contains_no_prompt_response_or_key(server: ModelServer, source: str, spans: InMemorySpanExporter) -> None:
    model = module(server, source)
    for way in ways(model, ASKED):
        way()
    server.faults = lambda _: Status(400, f"the answer of {KEY}")
    for way in ways(model, ASKED):
        with pytest.raises(ModuleError):
            way()
    written = "".join(span.to_json() for span in spans.get_finished_spans())
    assert len(spans.get_finished_spans()) == 8
    assert not [word for word in (*SECRETS, KEY) if word in written]


@SOME
def test_span_of_a_failed_call_has_error_kind(server: ModelServer, source: str, spans: InMemorySpanExporter) -> None:
    model = module(server, source)
    server.faults = [Status(429)]
    with pytest.raises(ModuleError):
        model(ASKED)
    server.faults = [Cut(6)]
    with pytest.raises(ModuleError):
        list(model.stream(ASKED))
    with model.stream(ASKED) as stream:
        next(stream.deltas())
    server.faults = [Slow(first=TIMEOUT)]
    run_in_loop(model, cancel_call(model, server))
    server.answer = Answer("", prompt_tokens=3, completion_tokens=0)
    with pytest.raises(ModuleError):
        model(ASKED)
    found = spans.get_finished_spans()
    kinds = ["rate limit", "cut", "GeneratorExit", "CancelledError", "empty"]
    told = [(attributes(span)["error.type"], span.status.description, span.status.status_code) for span in found]
    assert told == [(kind, kind, StatusCode.ERROR) for kind in kinds]
    assert attributes(found[-1])["gen_ai.usage.input_tokens"] == 3  # the tokens of an empty response are paid for


def test_spans_are_children_of_the_callers_current_span(server: ModelServer, spans: InMemorySpanExporter) -> None:
    provider = TracerProvider()
    tracer = provider.get_tracer("caller")
    model = module(server, "openai")
    with tracer.start_as_current_span("caller") as parent:
        model(ASKED)
        stream = iter(model.stream(ASKED))
        next(stream)
        assert trace.get_current_span() is parent
        list(stream)
        run_in_loop(model, model.acall(ASKED))
    parents = [span.parent.span_id for span in spans.get_finished_spans() if span.parent]
    assert parents == [parent.get_span_context().span_id] * 3
    provider.shutdown()


def test_calls_work_without_opentelemetry(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without_tracer:
        without_tracer.setattr(telemetry, "_tracer", lambda: None)
        assert module(server, "openai")(ASKED) == "the answer"
    telemetry._tracer.cache_clear()  # noqa: SLF001 - its cache is tested
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert module(server, "openai")(ASKED) == "the answer"
    assert not [name for name in sys.modules if name.startswith("opentelemetry.")]
    telemetry._tracer.cache_clear()  # noqa: SLF001 - the same


def test_tracer_comes_from_the_global_provider() -> None:
    telemetry._tracer.cache_clear()  # noqa: SLF001 - its cache is tested
    assert type(telemetry._tracer()).__name__ in ("ProxyTracer", "Tracer")  # noqa: SLF001 - the same
