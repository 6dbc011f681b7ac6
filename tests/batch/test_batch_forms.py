"""Lines of every format: their bytes, and whether they fit the official types."""

import json
import pickle
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from lazyprompt import ChatPrompter, Prompty
from lazyprompt.batch.forms import FORMS, BatchForm, form_of
from lazyprompt.batch.render import RowPlan
from lazyprompt.errors import BatchError, FormatError
from lazyprompt.formatters.providers import PROVIDERS
from support.paths import GOLDEN
from support.providers.judges import in_order
from support.providers.types import MisfitError, fits, many, sdk, strictly

LINES = GOLDEN / "batch_lines.txt"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": CITY}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
]
PROMPTER = ChatPrompter({"system": "Be {style}.", "user": "{question}"}, system="")
ROWS: list[dict[str, Any]] = [
    {"style": "kind", "question": 'Say "hi"\r\nin 中文\u2028now', "label": "嗨"},
    {"style": "brief", "question": "And now?", "history": CALLS, "tools": TOOLS, "id": "two", "label": "It does."},
]
BATCHES = [name for name in FORMS if name.endswith("-batch")]
MODELLED = [name for name in BATCHES if FORMS[name].has_model]
TRAINS = [name for name in FORMS if name.startswith("train-")]
# Fields that some formats require; the clients have no types of them.
_ANSWERED = {"max_tokens": 64}


class _OpenAILine(TypedDict):
    custom_id: str
    method: Literal["POST"]
    url: Literal["/v1/chat/completions", "/v1/responses", "/v4/chat/completions"]
    body: dict[str, Any]


class _GeminiLine(TypedDict):
    key: str
    request: dict[str, Any]


class _GeminiRequest(TypedDict):
    """GenerateContentRequest; the types of its parts are in the client."""

    contents: list[dict[str, Any]]
    system_instruction: NotRequired[dict[str, Any]]
    tools: NotRequired[list[dict[str, Any]]]
    generation_config: NotRequired[dict[str, Any]]


def plan(name: str, prompter: Any = PROMPTER, **more: Any) -> RowPlan:
    form = form_of(name)
    if form.has_model:
        more.setdefault("model", "m")
    if form.sample:
        more.setdefault("train", "all" if form.sample == "sharegpt" else "last")
    if form.needs:
        more.setdefault("params", _ANSWERED)
    return RowPlan.of(prompter, name, **more)


def rows_for(name: str) -> list[dict[str, Any]]:
    """The rows that a format supports: some have no tool calls."""
    if name in ("flat", "ollama-generate", "train-alpaca", "train-trl-text"):
        return ROWS[:1]
    return ROWS


def render_lines(name: str, **more: Any) -> list[bytes]:
    return [plan(name, **more).line(number, row) for number, row in enumerate(rows_for(name), 1)]


def _check_openai(provider: str, line: dict[str, Any]) -> None:
    fits(_OpenAILine, line)
    body = dict(line["body"])
    assert body.pop("model") == "m"
    body.pop("max_tokens", None)
    strictly(provider, body)
    in_order(provider, body)


def _check_anthropic(line: dict[str, Any]) -> None:
    fits(sdk("anthropic.types.messages.batch_create_params").Request, line)
    in_order("anthropic", {key: line["params"][key] for key in line["params"].keys() - {"model", "max_tokens"}})


def _check_gemini(line: dict[str, Any]) -> None:
    types = sdk("google.genai.types")
    fits(_GeminiLine, line)
    request = line["request"]
    fits(_GeminiRequest, request)
    fits(many(types.Content), request["contents"])
    for content in (*request["contents"], request.get("system_instruction", {})):
        fits(types.Content, content)
    fits(many(types.Tool), request.get("tools", []))
    fits(types.GenerationConfig, request.get("generation_config", {}))
    in_order("gemini", {key: request[key] for key in request.keys() - {"generation_config"}})


def judge(name: str, line: dict[str, Any]) -> None:
    if name == "anthropic-batch":
        _check_anthropic(line)
    elif name == "gemini-batch":
        _check_gemini(line)
    elif name in BATCHES:
        _check_openai(str(form_of(name).provider), line)
    else:
        assert list(line) == ["custom_id", "payload"]
        strictly(name, line["payload"])
        in_order(name, line["payload"])


def test_lines_of_every_format_match_the_golden_file() -> None:
    """To update the file after checking the difference: python tests/batch/test_batch_forms.py."""
    assert render_all_lines() == LINES.read_text(encoding="utf-8")


def render_all_lines() -> str:
    return "".join(f"## {name}\n{b''.join(render_lines(name)).decode()}\n" for name in FORMS)


@pytest.mark.parametrize("name", [*PROVIDERS, *BATCHES])
def test_every_line_fits_the_official_types(name: str) -> None:
    for line in render_lines(name):
        judge(name, json.loads(line))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("openai-batch", {"custom_id": 1, "method": "POST", "url": "/v1/chat/completions", "body": {}}),
        ("anthropic-batch", {"custom_id": "a", "params": {"model": "m", "messages": []}}),
        ("gemini-batch", {"key": "a", "request": {"contents": [], "system_instruction": "Be kind."}}),
    ],
)
def test_lines_that_services_refuse_do_not_fit_the_official_types(name: str, broken: dict[str, Any]) -> None:
    with pytest.raises((MisfitError, KeyError)):
        judge(name, broken)


def test_an_unknown_format_is_an_error_with_a_suggestion() -> None:
    assert form_of(None) is FORMS["flat"]
    with pytest.raises(
        FormatError, match=r"unknown format 'openai-bach' \(did you mean 'openai-batch'\?\); expected one of flat"
    ):
        form_of("openai-bach")


def test_the_model_of_a_prompt_file_is_not_used_for_another_provider() -> None:
    """Requests to one provider had the model that the prompt file sets for another provider."""
    file = Prompty.loads("---\nmodel: {id: claude, provider: anthropic}\n---\nuser:\n{{ q }}")
    with pytest.raises(BatchError, match="^openai-batch requires a model name in each request; pass model="):
        RowPlan.of(file, "openai-batch")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    request = json.loads(RowPlan.of(file, "openai-batch", model="m").line(1, {"q": "Hi"}))
    assert request == {
        "custom_id": "row-1",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", **body},
    }
    assert json.loads(RowPlan.of(file, "anthropic-batch").line(1, {"q": "Hi"}))["params"]["model"] == "claude"


def test_row_names_become_custom_ids() -> None:
    row = {"style": "a", "question": "b"}
    assert json.loads(plan("anthropic-batch").line(7, row))["custom_id"] == "row-7"
    assert json.loads(plan("anthropic-batch").line(7, {**row, "id": 12}))["custom_id"] == "12"
    # An empty CSV cell.
    assert json.loads(plan("openai-batch").line(7, {**row, "id": ""}))["custom_id"] == "row-7"
    assert json.loads(plan("openai-batch").line(7, {**row, "id": 'ü "\n'}))["custom_id"] == 'ü "\n'


@pytest.mark.parametrize("name", ["a b", "ü", "a" * 65, "a\n"])
def test_row_names_that_a_service_would_refuse_are_errors(name: str) -> None:
    message = r"^row 7: anthropic-batch requires names that match \[a-zA-Z0-9_-\]\{1,64\}"
    with pytest.raises(BatchError, match=message):
        plan("anthropic-batch").line(7, {"style": "a", "question": "b", "id": name})


def test_params_are_in_each_request() -> None:
    params: dict[str, Any] = {"temperature": 1e-7, "stop": ["\n"], "n": 10**30}
    made = plan("openai-batch", params=params)
    params["stop"].append("changed")
    for row in ROWS:
        body = json.loads(made.line(1, row))["body"]
        assert (body["temperature"], body["stop"], body["n"]) == (1e-7, ["\n"], 10**30)
    config = {"generation_config": {"temperature": 0.5, "max_output_tokens": 10}}
    line = json.loads(plan("gemini-batch", params=config).line(1, ROWS[0]))
    judge("gemini-batch", line)
    assert line["request"]["generation_config"] == config["generation_config"]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        *(
            (name, {"params": _ANSWERED}, f"{name} requires a model name in each request; pass model=")
            for name in MODELLED
        ),
        (
            "anthropic-batch",
            {"model": "m"},
            r"requires 'max_tokens' in each request; pass params=\{'max_tokens': ...\}",
        ),
        ("flat", {"params": {"n": 1}}, "flat does not accept 'n'; only complete requests"),
        ("openai", {"params": {"n": 1}}, "openai does not accept 'n'"),
        ("gemini-batch", {"params": {"contents": []}}, "params contains 'contents', which the prompt sets"),
        ("gemini-batch", {"params": {"n": float("nan")}}, "params.n is nan, which is not valid JSON"),
        ("gemini-batch", {"params": {"n": {1}}}, "params.n has type set"),
    ],
)
def test_missing_and_unsupported_settings_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BatchError, match=message):
        RowPlan.of(PROMPTER, name, **settings)


def test_batch_forms_can_be_pickled() -> None:
    for form in FORMS.values():
        twin = pickle.loads(pickle.dumps(form))  # noqa: S301 - our own bytes
        assert twin == form
        assert isinstance(twin, BatchForm)
    assert set(TRAINS) == {"train-openai", "train-alpaca", "train-sharegpt", "train-trl", "train-trl-text"}


if __name__ == "__main__":
    LINES.write_text(render_all_lines(), encoding="utf-8")
