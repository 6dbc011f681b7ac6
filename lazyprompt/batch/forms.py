"""The forms of a line of output, as a table, with the rules of who reads them; and how a line is written and counted.

- ``flat``: the flat prompt beside the name of its row; and one for each provider, its payload beside that name.
- ``...-batch``: what the services that work through files of requests read. Each says where its rules are from.
- ``train-...``: what trainers read, as :mod:`lazyprompt.training.samples` writes it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lazyprompt._base.json import Json, JsonObject, dump
from lazyprompt.errors import BatchError, FormatError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.tokens.counter import TokenCounter

_MB = 1000 * 1000


class Limits(NamedTuple):
    """The limits of one file of a form.

    Attributes:
        requests: The most lines; None where there is no limit.
        bytes: The most bytes; a service that says MB may mean 1,000,000 bytes, so it is taken to.
        line_bytes: The most bytes of one line.
        source: The page that says so.
    """

    requests: int | None = None
    bytes: int | None = None
    line_bytes: int | None = None
    source: str = ""


_UNLIMITED = Limits()


def _as_it_is(body: JsonObject) -> JsonObject:
    return body


@dataclass(frozen=True, slots=True)
class BatchForm:
    """Form of a line: the name of the row, the keys of all lines, and the prompt in the form of a provider.

    Args:
        name: Its name.
        provider: The form of the prompt: ``flat``, or a provider; ``""`` for a sample to train with.
        id_key: The key of the row's name; ``""`` where a line has none.
        fields: The fields between the name and the prompt, the same in all lines.
        body_key: The key of the prompt; ``""`` where the prompt is the whole line.
        sample: The form of a sample to train with, as of ``TrainingSample.export``; ``""`` for a prompt.
        has_model: True if the prompt's body names the model.
        needs: The fields that a body must have, and that no prompter knows.
        api: The interface of prompt files that makes the body, as of ``Prompty.request``; ``""`` where it is a
            payload alone.
        ids: The names of rows that it takes.
        limits: The limits of one file.
        change: Changes a provider's payload, which is made for its client, for a file.
        hosted: True if the service is hosted, though it takes the form of a server of one's own.
    """

    name: str
    provider: str = ""
    id_key: str = "custom_id"
    fields: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    body_key: str = "payload"
    sample: str = ""
    has_model: bool = False
    needs: tuple[str, ...] = ()
    api: str = ""
    ids: re.Pattern[str] | None = None
    limits: Limits = _UNLIMITED
    change: Callable[[JsonObject], JsonObject] = _as_it_is
    hosted: bool = False

    @property
    def is_request(self) -> bool:
        """True if a line is a whole request, to which fields as ``max_tokens`` can be added."""
        return bool(self.api)

    def checked_id(self, name: str) -> str:
        """Return the name of a row, if lines of this form can have it.

        Raises:
            BatchError: They cannot.
        """
        if self.ids is not None and not self.ids.fullmatch(name):
            raise BatchError(f"{self.name} takes names of the form {self.ids.pattern}, and the row's is {name!r}")
        return name

    def line(self, name: str, body: Json) -> JsonObject:
        """Return the object of a line.

        Args:
            name: The name of the row.
            body: The prompt in its form.
        """
        if not self.body_key:
            return cast("JsonObject", body)
        return {self.id_key: name, **self.fields, self.body_key: body}


def _file_of_gemini(body: JsonObject) -> JsonObject:
    """Return a payload for Google's client as the interface itself has it: there, system text is content with parts.

    The model is named when the file is handed in.
    """
    system = body.get("system_instruction")
    body = {key: value for key, value in body.items() if key != "model"}
    if isinstance(system, str):
        body["system_instruction"] = {"parts": [{"text": system}]}
    return body


def _like_openai(name: str, provider: str, url: str, limits: Limits, api: str = "chat") -> BatchForm:
    """Return a form of OpenAI's lines, which others have taken over."""
    return BatchForm(
        name,
        provider,
        fields={"method": "POST", "url": url},
        body_key="body",
        has_model=True,
        api=api,
        limits=limits,
    )


_OPENAI = Limits(50_000, 200 * _MB, source="https://platform.openai.com/docs/api-reference/batch/create")
_BATCHES = (
    _like_openai("openai-batch", "openai", "/v1/chat/completions", _OPENAI),
    _like_openai("openai-responses-batch", "openai-responses", "/v1/responses", _OPENAI, "responses"),
    BatchForm(
        "anthropic-batch",
        "anthropic",
        body_key="params",
        has_model=True,
        needs=("max_tokens",),
        api="chat",
        ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        limits=Limits(
            100_000, 256 * _MB, source="https://platform.claude.com/docs/en/build-with-claude/batch-processing"
        ),
    ),
    BatchForm(
        "gemini-batch",
        "gemini",
        "key",
        body_key="request",
        api="chat",
        # The page has a limit of bytes alone.
        limits=Limits(None, 2000 * _MB, source="https://ai.google.dev/gemini-api/docs/batch-api"),
        change=_file_of_gemini,
    ),
    # Alibaba's service takes OpenAI's form and not DashScope's own: as vLLM does, which serves the same models.
    replace(
        _like_openai(
            "dashscope-batch",
            "vllm",
            "/v1/chat/completions",
            Limits(50_000, 500 * _MB, 6 * _MB, source="https://help.aliyun.com/en/model-studio/batch-inference"),
        ),
        hosted=True,
    ),
    _like_openai(
        "zhipu-batch",
        "zhipu",
        "/v4/chat/completions",
        Limits(50_000, 100 * _MB, source="https://docs.bigmodel.cn/cn/guide/tools/batch"),
    ),
    # A program of one's own, which sets no limits.
    _like_openai(
        "vllm-batch",
        "vllm",
        "/v1/chat/completions",
        Limits(source="https://docs.vllm.ai/en/stable/cli/run-batch/"),
    ),
)
_SAMPLES = ("openai", "alpaca", "sharegpt", "trl", "trl-text")

FORMS: Final[Mapping[str, BatchForm]] = {
    form.name: form
    for form in (
        BatchForm("flat", "flat", "id", body_key="prompt"),
        *(BatchForm(provider, provider) for provider in PROVIDERS),
        *_BATCHES,
        *(BatchForm(f"train-{name}", id_key="", body_key="", sample=name) for name in _SAMPLES),
    )
}


def form_of(name: str | None) -> BatchForm:
    """Return a form by its name.

    Args:
        name: One of ``FORMS``; None is ``flat``.

    Raises:
        FormatError: There is no such form.
    """
    if not isinstance(cast("object", name), str | None):
        raise FormatError(f"the format of rows is a name, not a {type(name).__name__}; known are {', '.join(FORMS)}")
    form = FORMS.get("flat" if name is None else name)
    if form is None:
        raise FormatError(f"format {name!r} is unknown{did_you_mean(str(name), FORMS)}; known are {', '.join(FORMS)}")
    return form


# JSON as the lines of a file have it: UTF-8, without spaces, without an escape that need not be. The end of a line
# within a text is escaped, so a line of a file is a line of JSON. The ends that only Unicode knows (U+0085, U+2028,
# U+2029) stay as they are: readers of JSON Lines split at the first kind alone.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Json) -> bytes:
    """Return a JSON value as UTF-8; it was checked before: numbers are finite, texts well formed."""
    return _encode(value).encode()


try:
    text_bytes: Callable[[Json], bytes] = import_module("orjson").dumps
except ImportError:
    text_bytes = json_bytes
"""Return a JSON value in which there are texts alone, as UTF-8.

orjson writes text exactly as Python's json does, ten times as fast; numbers it writes otherwise (``1e16``, not
``1e+16``) or not at all. So the lines are the same wherever it is installed.
"""


# Where lines hold the prompt; in other lines it is the whole line.
_BODIES = ("body", "payload", "params", "request")
# The content of a prompt, by the keys of all forms: messages; instructions beside them; texts alone.
_MESSAGES = ("messages", "input", "contents")
_TOLD = ("system", "system_instruction", "instructions")
_TEXTS = ("prompt", "completion", "instruction", "output", "history", "conversations")


@dataclass(frozen=True, slots=True)
class LineCounter:
    """Counts the tokens of lines.

    Args:
        name: The name of the counter, as ``tiktoken:gpt-4o``.
        counter: The counter.
    """

    name: str
    counter: TokenCounter

    def __call__(self, line: bytes) -> int:
        """Count the tokens of a line's prompt: its messages, its tools, its texts; not the names of rows and models.

        Args:
            line: The line, as JSON.

        Raises:
            LazyPromptError: The counter cannot count it.
        """
        found: dict[str, Any] = json.loads(line)
        body = next((found[key] for key in _BODIES if isinstance(found.get(key), dict)), found)
        # What a client of DashScope sends has a level more.
        body = {**body, **body["input"], **body.get("parameters", {})} if isinstance(body.get("input"), dict) else body
        messages, texts = [*_messages(body)], [*_texts(body)]
        tools = cast("Sequence[Mapping[str, Any]] | None", body.get("tools") or None)
        counted = sum(map(self.counter.count_text, texts))
        return counted + (self.counter.count(messages, tools) if messages else 0)


def _messages(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the system text and the messages."""
    for key in _TOLD:
        content = body.get(key)
        if content:
            yield (
                content if isinstance(content, dict) and "parts" in content else {"role": "system", "content": content}
            )
    for key in _MESSAGES:
        content = body.get(key)
        if isinstance(content, str) and content:
            yield {"role": "user", "content": content}
        elif isinstance(content, list):
            for each in cast("list[object]", content):
                yield cast("Mapping[str, Any]", each) if isinstance(each, dict) else {"role": "user", "content": each}


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts that are no messages; messages in their place are read as text."""
    for key in _TEXTS:
        content = body.get(key)
        if content:
            yield content if isinstance(content, str) else dump(content)
