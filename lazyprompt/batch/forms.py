"""Formats for output lines, limits of the services that read these lines, and functions that write JSON lines.

- ``flat`` contains the row's name and its flat prompt.
- Each provider's format contains the row's name and its payload.
- ``...-batch`` formats produce request files for batch services; each format cites the page that documents its limits.
- ``train-...`` formats produce training data, which :mod:`lazyprompt.training.samples` writes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lazyprompt._base.json import Json, JsonObject, dump, is_list, is_mapping
from lazyprompt.errors import BatchError, FormatError, did_you_mean
from lazyprompt.formatters.profile import Profile
from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.tokens.counter import TokenCounter

_MB = 1000 * 1000


class FileLimits(NamedTuple):
    """The limits for one output file.

    Attributes:
        requests: The maximum number of lines in the file; None for no limit.
        bytes: The maximum file size in bytes; 1 MB in a service's documentation counts as 1,000,000 bytes.
        line_bytes: The maximum size of one line, in bytes.
        source: The URL of the page on which the service documents its file limits.
    """

    requests: int | None = None
    bytes: int | None = None
    line_bytes: int | None = None
    source: str = ""


_UNLIMITED = FileLimits()


def _keep(body: JsonObject) -> JsonObject:
    return body


@dataclass(frozen=True, slots=True)
class BatchForm:
    """The format of an output line: the row's name, constant fields, and the prompt in a provider's format.

    Args:
        name: The format's name.
        provider: The prompt's format: ``flat``, a provider or a profile; ``""`` for a training sample.
        id_key: The key for the row's name; ``""`` if lines have no name.
        fields: The constant fields between the name and the prompt.
        body_key: The key for the prompt; ``""`` if the prompt is the whole line.
        sample: The format of a training sample (see ``TrainingSample.export``); ``""`` for a prompt.
        has_model: True if each request includes the model name.
        needs: The fields that the service requires in each request, but that prompters don't set.
        api: The API for a prompt file's request (see ``Prompty.request``); ``""`` if a line contains only a payload.
        ids: The pattern that row names must match; None for any name.
        limits: The limits for one output file.
        change: A function that converts a payload from the client's format to the format of a request file.
        hosted: True if a hosted service reads the lines, although ``provider`` is a local server.
    """

    name: str
    provider: str | Profile = ""
    id_key: str = "custom_id"
    fields: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    body_key: str = "payload"
    sample: str = ""
    has_model: bool = False
    needs: tuple[str, ...] = ()
    api: str = ""
    ids: re.Pattern[str] | None = None
    limits: FileLimits = _UNLIMITED
    change: Callable[[JsonObject], JsonObject] = _keep
    hosted: bool = False

    @property
    def is_request(self) -> bool:
        """True if a line is a complete request, which can have fields such as ``max_tokens``."""
        return bool(self.api)

    def checked_id(self, name: str) -> str:
        """Return a row's name if this format accepts it.

        Raises:
            BatchError: The name does not match the format's pattern.
        """
        if self.ids is not None and not self.ids.fullmatch(name):
            raise BatchError(f"{self.name} requires names that match {self.ids.pattern}; the row's name is {name!r}")
        return name

    def line(self, name: str, body: Json) -> JsonObject:
        """Return an output line as a JSON object.

        Args:
            name: The row's name.
            body: The prompt in the provider's format, or the training sample.
        """
        if not self.body_key and isinstance(body, dict):
            return body
        return {self.id_key: name, **self.fields, self.body_key: body}


def _to_gemini_file(body: JsonObject) -> JsonObject:
    """Convert a payload for Google's client to the REST format, in which system text is content with parts."""
    system = body.get("system_instruction")
    return {**body, "system_instruction": {"parts": [{"text": system}]}} if isinstance(system, str) else body


def _openai_batch(name: str, provider: str, url: str, limits: FileLimits, api: str = "chat") -> BatchForm:
    """Return a provider's version of OpenAI's batch format, which several services have adopted."""
    return BatchForm(
        name,
        provider,
        fields={"method": "POST", "url": url},
        body_key="body",
        has_model=True,
        api=api,
        limits=limits,
    )


_OPENAI = FileLimits(50_000, 200 * _MB, source="https://platform.openai.com/docs/api-reference/batch/create")
_BATCHES = (
    _openai_batch("openai-batch", "openai", "/v1/chat/completions", _OPENAI),
    _openai_batch("openai-responses-batch", "openai-responses", "/v1/responses", _OPENAI, "responses"),
    BatchForm(
        "anthropic-batch",
        "anthropic",
        body_key="params",
        has_model=True,
        needs=("max_tokens",),
        api="chat",
        ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        limits=FileLimits(
            100_000, 256 * _MB, source="https://platform.claude.com/docs/en/build-with-claude/batch-processing"
        ),
    ),
    BatchForm(
        "gemini-batch",
        "gemini",
        "key",
        body_key="request",
        api="chat",
        # Google documents a limit on the file size, but not on the number of requests.
        limits=FileLimits(None, 2000 * _MB, source="https://ai.google.dev/gemini-api/docs/batch-api"),
        change=_to_gemini_file,
    ),
    # Alibaba's batch service expects requests in OpenAI's format, not in DashScope's.
    replace(
        _openai_batch(
            "dashscope-batch",
            "vllm",
            "/v1/chat/completions",
            FileLimits(50_000, 500 * _MB, 6 * _MB, source="https://help.aliyun.com/en/model-studio/batch-inference"),
        ),
        hosted=True,
    ),
    _openai_batch(
        "zhipu-batch",
        "zhipu",
        "/v4/chat/completions",
        FileLimits(50_000, 100 * _MB, source="https://docs.bigmodel.cn/cn/guide/tools/batch"),
    ),
    # vLLM runs locally, so its batch files have no size limit.
    _openai_batch(
        "vllm-batch",
        "vllm",
        "/v1/chat/completions",
        FileLimits(source="https://docs.vllm.ai/en/stable/cli/run-batch/"),
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


def form_of(name: object) -> BatchForm:
    """Return the line format with the given name.

    Args:
        name: A name in ``FORMS``; None means ``flat``. A profile has the line format of a provider.

    Raises:
        FormatError: The format is unknown.
    """
    if isinstance(name, Profile):
        return BatchForm(name.name, name)
    if not isinstance(name, str | None):
        raise FormatError(f"format must be one of {', '.join(FORMS)}, or a Profile, not {type(name).__name__}")
    form = FORMS.get("flat" if name is None else name)
    if form is None:
        raise FormatError(
            f"unknown format {name!r}{did_you_mean(name, FORMS)}; expected one of {', '.join(FORMS)}, or a Profile"
        )
    return form


# Line separators such as U+2028 need no escaping, because JSON Lines readers split only at newlines.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Json) -> bytes:
    """Serialize a valid JSON value as UTF-8."""
    return _encode(value).encode()


try:
    text_bytes: Callable[[Json], bytes] = import_module("orjson").dumps
except ImportError:
    text_bytes = json_bytes
"""Serialize a JSON value without numbers as UTF-8.

orjson writes text exactly as Python's json does, and is ten times faster, but it writes numbers differently (``1e16``
instead of ``1e+16``). Because only values without numbers use it, the output is the same with and without orjson.
"""


# The keys under which a line can contain its prompt. A line with none of the keys is itself a prompt.
_BODIES = ("body", "payload", "params", "request")
_MESSAGES = ("messages", "input", "contents")
_SYSTEM = ("system", "system_instruction", "instructions")
_TEXTS = ("prompt", "completion", "instruction", "output", "history", "conversations")


@dataclass(frozen=True, slots=True)
class LineCounter:
    """A token counter for output lines.

    Args:
        name: The counter's name, such as ``tiktoken:gpt-4o``.
        counter: The token counter.
    """

    name: str
    counter: TokenCounter

    def __call__(self, line: bytes) -> int:
        """Count the tokens in a line's messages, tools and texts, excluding the names of the row and the model.

        Args:
            line: The line, as JSON.

        Raises:
            LazyPromptError: The counter cannot count the line's tokens.
        """
        found: dict[str, Any] = json.loads(line)
        body = next((found[key] for key in _BODIES if isinstance(found.get(key), dict)), found)
        # DashScope nests messages in "input" and tools in "parameters".
        body = {**body, **body["input"], **body.get("parameters", {})} if isinstance(body.get("input"), dict) else body
        messages, texts = [*_messages(body)], [*_texts(body)]
        tools: Sequence[Mapping[str, Any]] | None = body.get("tools") or None
        counted = sum(map(self.counter.count_text, texts))
        return counted + (self.counter.count(messages, tools) if messages else 0)


def _messages(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the system text and the messages in a request body."""
    for key in _SYSTEM:
        content = body.get(key)
        if content:
            yield (
                content if isinstance(content, dict) and "parts" in content else {"role": "system", "content": content}
            )
    for key in _MESSAGES:
        content = body.get(key)
        if isinstance(content, str) and content:
            yield {"role": "user", "content": content}
        elif is_list(content):
            for each in content:
                yield each if is_mapping(each) else {"role": "user", "content": each}


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flat prompt or the training texts from the body of a line; lists are yielded as JSON."""
    for key in _TEXTS:
        content = body.get(key)
        if content:
            yield content if isinstance(content, str) else dump(content)
