"""Rows that are sent to a model: in order, within rate limits, each paid once."""

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lazyprompt import ChatPrompter, TrainableModule
from lazyprompt.batch import journal as journal_module
from lazyprompt.batch.calls import CallJob, call_batch
from lazyprompt.batch.database import BatchStoppedError, Line, RunDatabase
from lazyprompt.batch.forms import LineCounter
from lazyprompt.batch.rates import Pace, Rates
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob, Progress
from lazyprompt.errors import BatchError
from lazyprompt.tokens.counter import CharTokenCounter
from support.batch_calls import Clocked, all_answered, calls_of, lines, rows
from support.missing import needs
from support.model_server import chat
from support.model_server.server import Answer, Misbehaviour, ModelServer, Slow, Status

needs("openai")

# Seconds that a request may be late by the server's clock, so that the next seems early.
_LATE = 0.3
CLIENTS = pytest.mark.parametrize("source", ["openai", "anthropic"])


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def at(row: str, fault: Misbehaviour) -> Callable[[str], Misbehaviour | None]:
    """A server fault for one row."""
    return lambda each: fault if each == row else None


@pytest.mark.slow
@CLIENTS
def test_responses_are_written_in_row_order(tmp_path: Path, source: str) -> None:
    # The response of the second row comes last.
    with Clocked(lambda row: Slow(first=0.2 if row == "2" else 0.0)) as server:
        outcome = call_batch(calls_of(rows(tmp_path, 20), server.url(source), source))
    assert all_answered(tmp_path / "out.jsonl", 20)
    assert (outcome.written, outcome.rejected, outcome.tokens) == (20, 0, 20 * 25)
    assert sorted(map(int, server.said)) == [*range(1, 21)]
    assert names(tmp_path) == {"data.jsonl", "out.jsonl"}


def test_a_response_is_written_with_reasoning_tool_calls_and_usage(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"id":"a","input":"1"}\n')
    with Clocked() as server:
        server.answer = Answer("中文\n", "hm", (("c1", "weather", {"city": "Rome"}),), prompt_tokens=3)
        url = server.url("deepseek")
        call_batch(calls_of(path, url, "deepseek", prompter=ChatPrompter(), params={"max_tokens": 7}))
        assert server.seen[0].body["max_tokens"] == 7
    assert (tmp_path / "out.jsonl").read_bytes() == (
        '{"row":1,"custom_id":"a","text":"中文\\n","thinking":"hm",'
        '"tool_calls":[{"id":"c1","name":"weather","input":{"city":"Rome"}}],'
        '"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4},"finish":"tool_calls","model":"m"}\n'
    ).encode()


@pytest.mark.slow
@CLIENTS
def test_concurrent_requests_stay_within_the_limit(tmp_path: Path, source: str) -> None:
    with Clocked(lambda _: Slow(first=0.1)) as server:
        call_batch(calls_of(rows(tmp_path, 10), server.url(source), source, rates=Rates(3)))
    # The fourth request is sent after the response to the first.
    assert all(later - earlier >= 0.1 for earlier, later in zip(server.times, server.times[3:], strict=False))


@pytest.mark.slow
def test_requests_per_minute_stay_within_the_limit(tmp_path: Path) -> None:
    with Clocked() as server:
        call_batch(calls_of(rows(tmp_path, 16), server.url("openai"), rates=Rates(8, rpm=1_200)))
    times = server.times
    # One in 50 ms; a busy machine may be late with any of them.
    assert min(times[later] - times[0] - later * 0.05 for later in range(16)) >= -_LATE


@pytest.mark.slow
def test_tokens_per_minute_stay_within_the_limit(tmp_path: Path) -> None:
    with Clocked() as server:
        server.answer = Answer("so", prompt_tokens=140, completion_tokens=60)
        call_batch(calls_of(rows(tmp_path, 8), server.url("openai"), rates=Rates(4, tpm=120_000)))
    # 200 tokens take 100 ms.
    assert server.times[-1] - server.times[0] >= 7 * 0.1 - _LATE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counter", "tokens"),
    # A thousand tokens, or five thousand characters; and five hundred for the answer.
    [(None, 1_500), (LineCounter("chars", CharTokenCounter()), 5_500)],
)
def test_prompt_tokens_are_estimated_before_sending(tmp_path: Path, counter: LineCounter | None, tokens: int) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"input": "word " * 1_000}) + "\n" for _ in range(4)))
    with Clocked() as server:
        server.answer = Answer("so", prompt_tokens=0, completion_tokens=0)  # a provider that reports no usage
        rates = Rates(4, tpm=tokens * 60 * 5)
        calls = calls_of(path, server.url("openai"), rates=rates, prompter=ChatPrompter())
        call_batch(replace(calls, job=replace(calls.job, counter=counter)))
    assert server.times[-1] - server.times[0] >= 3 * 0.2 - _LATE


@pytest.mark.slow
@CLIENTS
def test_the_retry_after_time_of_a_server_is_waited(tmp_path: Path, source: str) -> None:
    with Clocked() as server:
        faults: list[Misbehaviour | None] = [Status(429, retry_after=0.3)]
        server.misbehaves = lambda _: faults.pop() if faults else None
        call_batch(calls_of(rows(tmp_path, 3), server.url(source), source, retries=1, rates=Rates(1)))
    assert all_answered(tmp_path / "out.jsonl", 3)
    assert server.said == ["1", "1", "2", "3"]
    assert server.times[1] - server.times[0] >= 0.3


@pytest.mark.slow
@CLIENTS
def test_a_wrong_api_key_stops_the_run_and_a_valid_key_resumes_it(tmp_path: Path, source: str) -> None:
    path = rows(tmp_path, 30)
    with Clocked() as server:
        wrong = calls_of(path, server.url(source), source, api_key="wrong", skip=True, rates=Rates(4))
        with pytest.raises(
            BatchStoppedError, match=r"^row \d: .*pass a valid key as api_key=.*; 0 rows have a response"
        ):
            call_batch(wrong)
        assert len(server.seen) == 1
        call_batch(calls_of(path, server.url(source), source, skip=True))
    assert all_answered(tmp_path / "out.jsonl", 30)
    assert lines(tmp_path / "bad.jsonl") == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Status(404), "check the model's name and the server's URL"),
        (Status(402, "Insufficient Balance"), "Insufficient Balance.*raise the quota"),
        (Status(429, "You exceeded your current quota"), "You exceeded your current quota.*raise the quota"),
    ],
)
def test_an_error_that_concerns_all_rows_stops_the_run(tmp_path: Path, fault: Status, message: str) -> None:
    path = rows(tmp_path, 9)
    with Clocked(at("5", fault)) as server:
        with pytest.raises(BatchStoppedError, match=rf"^row 5: .*{message}.*; 4 rows have a response$"):
            call_batch(calls_of(path, server.url("openai"), skip=True, rates=Rates(1)))
        server.misbehaves = lambda _: None
        call_batch(calls_of(path, server.url("openai"), skip=True))
    assert all_answered(tmp_path / "out.jsonl", 9)
    assert sorted(server.said) == sorted([*map(str, range(1, 10)), "5"])


def test_a_refused_row_is_rejected_with_the_server_message(tmp_path: Path) -> None:
    path = rows(tmp_path, 6)
    path.write_text(path.read_text() + '{"input":"7"}\n{oops\n{"language":"Dutch","history":[1]}\n')
    with Clocked(at("3", Status(400, "Too rude"))) as server:
        outcome = call_batch(calls_of(path, server.url("openai"), skip=True, rates=Rates(2, tpm=10**9)))
    assert [line["row"] for line in lines(tmp_path / "out.jsonl")] == [1, 2, 4, 5, 6]
    refused, unfilled, unread, unsent = lines(tmp_path / "bad.jsonl")
    assert (refused["row"], refused["data"]) == (3, {"language": "Dutch", "input": "3"})
    assert "Too rude" in refused["reason"]
    assert (unfilled["row"], unfilled["reason"][:29]) == (7, "there is no column 'language'")
    assert (unread["row"], unread["lines"], unread["text"], unread["data"]) == (8, [8, 8], "{oops", None)
    assert (unsent["row"], unsent["reason"][:25]) == (9, "history[0] must be a pair")
    assert (outcome.written, outcome.rejected) == (5, 4)
    assert len(server.seen) == 6


def test_the_first_refused_row_stops_a_run_without_a_rejects_file(tmp_path: Path) -> None:
    path = rows(tmp_path, 9)
    with Clocked(at("5", Status(400, "Too rude"))) as server:
        with pytest.raises(BatchStoppedError, match=r"^row 5: .*Too rude.*; 4 rows have a response") as stopped:
            call_batch(calls_of(path, server.url("openai"), rates=Rates(1)))
        assert stopped.value.fault is not None  # so the command line suggests how to skip the row
        assert names(tmp_path) == {"data.jsonl", "out.jsonl.part", "out.jsonl.run"}
        call_batch(calls_of(path, server.url("openai"), skip=True))
    assert [line["row"] for line in lines(tmp_path / "out.jsonl")] == [1, 2, 3, 4, 6, 7, 8, 9]
    assert sorted(server.said) == sorted([*map(str, range(1, 10)), "5"])


def test_a_rejected_row_is_sent_again_by_a_run_without_a_rejects_file(tmp_path: Path) -> None:
    path = rows(tmp_path, 4)
    with Clocked({"2": Status(400), "4": Status(401)}.get) as server:
        with pytest.raises(BatchStoppedError, match="row 4"):
            call_batch(calls_of(path, server.url("openai"), skip=True, rates=Rates(1)))
        server.misbehaves = lambda _: None
        call_batch(calls_of(path, server.url("openai")))
    assert all_answered(tmp_path / "out.jsonl", 4)
    assert sorted(server.said) == ["1", "2", "2", "3", "4", "4"]


def test_a_row_with_a_server_error_is_rejected_after_another_row_has_a_response(tmp_path: Path) -> None:
    with Clocked(lambda row: Status(500) if row in ("2", "9") else None) as server:
        call_batch(calls_of(rows(tmp_path, 9), server.url("openai"), skip=True, rates=Rates(1)))
    assert [line["row"] for line in lines(tmp_path / "bad.jsonl")] == [2, 9]
    assert len(lines(tmp_path / "out.jsonl")) == 7


@pytest.mark.slow
def test_a_response_resets_the_count_of_failed_rows(tmp_path: Path) -> None:
    with Clocked(lambda row: Status(500) if int(row) % 2 else None) as server:
        call_batch(calls_of(rows(tmp_path, 30), server.url("openai"), skip=True, rates=Rates(1)))
    assert [line["row"] for line in lines(tmp_path / "bad.jsonl")] == [*range(1, 30, 2)]


@pytest.mark.slow
def test_a_permanently_failing_server_stops_the_run_and_its_rows_are_sent_again(tmp_path: Path) -> None:
    path = rows(tmp_path, 40)
    with Clocked(lambda row: Status(500) if int(row) > 5 else None) as server:
        with pytest.raises(BatchStoppedError, match=r"^10 rows in succession have no response.*: openai: .*500"):
            call_batch(calls_of(path, server.url("openai"), skip=True, rates=Rates(1)))
        assert server.said == [*map(str, range(1, 16))]
        server.misbehaves = lambda _: None
        call_batch(calls_of(path, server.url("openai"), skip=True))
    assert all_answered(tmp_path / "out.jsonl", 40)
    assert len(server.seen) == 40 + 10


@pytest.mark.parametrize("count", [3, 40])
def test_a_run_whose_requests_are_all_refused_stops_without_rejects(tmp_path: Path, count: int) -> None:
    with Clocked(lambda _: Status(400, "no such parameter")) as server:
        with pytest.raises(BatchStoppedError, match=r"rows in succession have no response.*no such parameter"):
            call_batch(calls_of(rows(tmp_path, count), server.url("openai"), skip=True, rates=Rates(1)))
        assert len(server.seen) == min(count, 10)
    assert not (tmp_path / "bad.jsonl").exists()


def test_an_unreachable_server_stops_the_run_without_rejects(tmp_path: Path) -> None:
    path = rows(tmp_path, 5)
    with Clocked() as server:
        url = server.url("openai")
        server.misbehaves = at("5", Status(401))
        with pytest.raises(BatchStoppedError):
            call_batch(calls_of(path, url, skip=True, rates=Rates(1)))
    with pytest.raises(
        BatchStoppedError, match=r"1 rows in succession have no response.*that the server is running.*; 4 rows have"
    ):
        call_batch(calls_of(path, url, skip=True))


def test_a_response_that_does_not_fit_the_response_format_is_kept_in_the_rejects(tmp_path: Path) -> None:
    class Json(ChatPrompter):
        @property
        def response_format(self) -> dict[str, Any]:
            return {"type": "object", "properties": {"name": {"type": "string"}}}

    with Clocked() as server, patch.object(Pace, "settle") as settle:
        call_batch(calls_of(rows(tmp_path, 2), server.url("openai"), skip=True, prompter=Json("In {language}.")))
    assert [call.args[1]["total_tokens"] for call in settle.call_args_list] == [25, 25]
    first, _ = lines(tmp_path / "bad.jsonl")
    assert (first["row"], first["answer"]["text"], first["answer"]["usage"]["total_tokens"]) == (1, "re: 1", 25)


@pytest.mark.slow
def test_a_stopped_run_waits_for_pending_requests(tmp_path: Path) -> None:
    path = rows(tmp_path, 20)
    with Clocked(lambda row: Slow(first=0.4 if int(row) > 4 else 0)) as server:
        calls = calls_of(path, server.url("openai"), rates=Rates(3))
        with pytest.raises(BatchStoppedError, match=r"^Ctrl-C; 7 rows have a response$"):
            call_batch(calls, stopped=lambda: "Ctrl-C" if len(server.came) == 7 else None)
        server.misbehaves = lambda _: None
        call_batch(calls_of(path, server.url("openai")))
    assert all_answered(tmp_path / "out.jsonl", 20)
    assert sorted(map(int, server.said)) == [*range(1, 21)]


@pytest.mark.slow
def test_requests_pending_after_the_grace_time_are_abandoned_and_reported(tmp_path: Path) -> None:
    path = rows(tmp_path, 20)
    with Clocked(lambda row: Slow(first=20 if int(row) > 4 else 0)) as server:
        calls = calls_of(path, server.url("openai"), rates=Rates(3))
        message = r"^enough; 4 rows have a response, 3 were pending and will be sent again$"
        with pytest.raises(BatchStoppedError, match=message):
            call_batch(calls, stopped=lambda: "enough" if len(server.came) == 7 else None, grace=0.1)
        server.misbehaves = lambda _: None
        call_batch(calls_of(path, server.url("openai")))
    assert all_answered(tmp_path / "out.jsonl", 20)
    assert len(server.came) == 20 + 3


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="Windows ends a process that is sent a signal")
def test_after_an_interrupt_no_further_row_is_sent(tmp_path: Path) -> None:
    def interrupt(row: str) -> Misbehaviour | None:
        if row != "4":
            return None
        os.kill(os.getpid(), signal.SIGINT)
        return Slow(first=0.3)

    path = rows(tmp_path, 20)
    with Clocked(interrupt) as server:
        with pytest.raises(KeyboardInterrupt):
            call_batch(calls_of(path, server.url("openai"), rates=Rates(2)))
        assert len(server.said) <= 6
        server.misbehaves = lambda _: None
        call_batch(calls_of(path, server.url("openai")))
    assert all_answered(tmp_path / "out.jsonl", 20)


def test_an_existing_output_is_refused_without_sending_requests(tmp_path: Path) -> None:
    path = rows(tmp_path, 3)
    with Clocked() as server:
        calls = calls_of(path, server.url("openai"))
        call_batch(calls)
        with pytest.raises(BatchError, match=r"out\.jsonl already exists; .* --restart to send all rows again"):
            call_batch(calls)
        assert len(server.seen) == 3
        call_batch(calls, restart=True)
        assert len(server.seen) == 6


def test_resuming_with_another_model_or_other_parameters_is_refused(tmp_path: Path) -> None:
    path = rows(tmp_path, 3)
    with Clocked(at("3", Status(401))) as server:
        with pytest.raises(BatchStoppedError):
            call_batch(calls_of(path, server.url("openai"), rates=Rates(1)))
        other = calls_of(path, server.url("openai"), model="n", params={"temperature": 1})
        message = r'the model was "openai m", now "openai n"; the parameters of calls was \{\}, now \{"temperature":'
        with pytest.raises(BatchError, match=message):
            call_batch(other)
        assert len(server.seen) == 3


def test_a_run_killed_while_finishing_sends_no_request_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    path = rows(tmp_path, 3)
    with Clocked() as server:
        calls = calls_of(path, server.url("openai"))
        for step in ("finish", "_move"):
            with monkeypatch.context() as patched:
                where: object = journal_module.Journal if step == "finish" else journal_module
                patched.setattr(where, step, killed)
                with pytest.raises(Killed):
                    call_batch(calls)
            assert "out.jsonl.run" in names(tmp_path)
        call_batch(calls)
        assert len(server.seen) == 3
    assert all_answered(tmp_path / "out.jsonl", 3)
    assert names(tmp_path) == {"data.jsonl", "out.jsonl"}


def test_a_full_disk_stops_the_run_and_keeps_saved_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = RunDatabase.add
    adds: list[int] = []

    def full(database: RunDatabase, lines: list[Line], **more: bool) -> None:
        adds.append(len(lines))
        if len(adds) == 3:
            raise sqlite3.OperationalError("database or disk is full")
        commit(database, lines, **more)

    path = rows(tmp_path, 6)
    with Clocked() as server:
        calls = calls_of(path, server.url("openai"), rates=Rates(1))
        with monkeypatch.context() as patched:
            patched.setattr(RunDatabase, "add", full)
            with pytest.raises(BatchStoppedError, match=r"out\.jsonl\.run cannot be written: database or disk is full"):
                call_batch(calls)
        call_batch(calls)
    assert all_answered(tmp_path / "out.jsonl", 6)
    assert len(server.seen) <= 7


def test_progress_reports_rows_rejects_and_tokens(tmp_path: Path) -> None:
    reports: list[Progress] = []
    with Clocked(at("2", Status(400))) as server:
        calls = calls_of(rows(tmp_path, 4), server.url("openai"), skip=True, rates=Rates(1))
        call_batch(calls, progress=reports.append)
    assert [(each.rows, each.rejected, each.tokens) for each in reports] == [
        (1, 0, 25),
        (2, 1, 25),
        (3, 1, 50),
        (4, 1, 75),
    ]


def test_history_and_tools_of_a_row_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    tools = [{"type": "function", "function": {"name": "weather", "description": "the weather"}}]
    path.write_text(json.dumps({"input": "And now?", "history": [["Hi", "Ho"]], "tools": tools}) + "\n")
    with Clocked() as server:
        call_batch(calls_of(path, server.url("openai"), prompter=ChatPrompter("Be short.")))
    (seen,) = server.seen
    assert [message["role"] for message in seen.body["messages"]] == ["system", "user", "assistant", "user"]
    assert seen.body["tools"][0]["function"]["name"] == "weather"


def test_a_local_model_gets_a_prompt_with_its_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "usage_fields", lambda _: None)
    path = rows(tmp_path, 3)
    with ModelServer(Answer("so"), judges=False) as server:
        module = TrainableModule("m", url=server.url("completions"), markers="chatml")
        job = BatchJob(row_file(path), RowPlan.of(ChatPrompter("In {language}.")), tmp_path / "out.jsonl")
        outcome = call_batch(CallJob(job, module))
    assert [(line["text"], line["usage"]) for line in lines(tmp_path / "out.jsonl")] == [("so", None)] * 3
    assert outcome.tokens is None
    prompt = min(seen.body["prompt"] for seen in server.seen)
    assert prompt.endswith("<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n")


def test_call_parameters_that_are_not_json_are_refused_before_the_run(tmp_path: Path) -> None:
    params: dict[str, Any] = {"stop": {1}}
    with pytest.raises(BatchError, match="call parameters are not valid JSON"):
        call_batch(calls_of(rows(tmp_path, 1), "http://localhost:1/v1", params=params))
    assert names(tmp_path) == {"data.jsonl"}
