"""The formats of an output line, with the rules of their readers; and the writing and counting of lines.

- ``flat``: the row's name and its flat prompt; and one format per provider: the row's name and its payload.
- ``...-batch``: the request files of batch services. Each names the source of its rules.
- ``train-...``: the training data that :mod:`lazyprompt.training.samples` writes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lazyprompt._base.json import Json, JsonObject, dump, is_list, is_mapping
from lazyprompt.errors import BatchError, FormatError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.tokens.counter import TokenCounter

_MB = 1000 * 1000


class FileLimits(NamedTuple):
    """The limits of one output file.

    Attributes:
        requests: The maximum number of lines; None for no limit.
        bytes: The maximum size in bytes; MB in a service's documentation counts as 1,000,000 bytes.
        line_bytes: The maximum size of one line in bytes.
        source: The page that documents the limits.
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
    """The format of a line: the row's name, constant fields, and the prompt in a provider's format.

    Args:
        name: The name of the format.
        provider: The format of the prompt: ``flat`` or a provider; ``""`` for a training sample.
        id_key: The key of the row's name; ``""`` if lines have no name.
        fields: The constant fields between the name and the prompt.
        body_key: The key of the prompt; ``""`` if the prompt is the whole line.
        sample: The format of a training sample, see ``TrainingSample.export``; ``""`` for a prompt.
        has_model: True if the prompt's body names the model.
        needs: The required fields of a body that no prompter sets.
        api: The API of a prompt file's request, see ``Prompty.request``; ``""`` for a payload alone.
        ids: The pattern of accepted row names.
        limits: The limits of one file.
        change: A function that converts a payload for the provider's client to one for a file.
        hosted: True if the service is hosted although it uses the format of a local server.
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
    limits: FileLimits = _UNLIMITED
    change: Callable[[JsonObject], JsonObject] = _keep
    hosted: bool = False

    @property
    def is_request(self) -> bool:
        """True if a line is a whole request, which can have fields such as ``max_tokens``."""
        return bool(self.api)

    def checked_id(self, name: str) -> str:
        """Return the name of a row, if this format accepts it.

        Raises:
            BatchError: The name does not match the pattern of the format.
        """
        if self.ids is not None and not self.ids.fullmatch(name):
            raise BatchError(f"{self.name} accepts names that match {self.ids.pattern}; the row's name is {name!r}")
        return name

    def line(self, name: str, body: Json) -> JsonObject:
        """Return the object of a line.

        Args:
            name: The name of the row.
            body: The prompt in the format of the provider or sample.
        """
        if not self.body_key and isinstance(body, dict):
            return body
        return {self.id_key: name, **self.fields, self.body_key: body}


def _to_gemini_file(body: JsonObject) -> JsonObject:
    """Convert a payload for Google's client to the REST form, where system text is content with parts.

    The model is named when the file is submitted, not in a line.
    """
    system = body.get("system_instruction")
    body = {key: value for key, value in body.items() if key != "model"}
    if isinstance(system, str):
        body["system_instruction"] = {"parts": [{"text": system}]}
    return body


def _openai_batch(name: str, provider: str, url: str, limits: FileLimits, api: str = "chat") -> BatchForm:
    """Return OpenAI's batch format, which other services have adopted."""
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
        # The page documents only a limit of bytes.
        limits=FileLimits(None, 2000 * _MB, source="https://ai.google.dev/gemini-api/docs/batch-api"),
        change=_to_gemini_file,
    ),
    # Alibaba's service expects OpenAI's format instead of DashScope's. vLLM serves the same models in that format.
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
    # A local program without limits.
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
    """Return a format by its name.

    Args:
        name: A name in ``FORMS``; None is ``flat``.

    Raises:
        FormatError: The format is unknown.
    """
    if not isinstance(name, str | None):
        raise FormatError(f"the format of rows is a {type(name).__name__}; give one of {', '.join(FORMS)}")
    form = FORMS.get("flat" if name is None else name)
    if form is None:
        raise FormatError(f"format {name!r} is unknown{did_you_mean(str(name), FORMS)}; known are {', '.join(FORMS)}")
    return form


# JSON for JSON Lines: UTF-8, without spaces or unneeded escapes. Newlines in text are escaped. Unicode's other line
# separators (U+0085, U+2028, U+2029) are not: readers of JSON Lines split only at newlines.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Json) -> bytes:
    """Return a checked JSON value as UTF-8."""
    return _encode(value).encode()


try:
    text_bytes: Callable[[Json], bytes] = import_module("orjson").dumps
except ImportError:
    text_bytes = json_bytes
"""Return a JSON value without numbers as UTF-8.

orjson writes text exactly as Python's json does, ten times faster, but numbers differently (``1e16``, not ``1e+16``).
So lines are the same with and without orjson.
"""


# The keys of the prompt in a line; without one of them the prompt is the whole line.
_BODIES = ("body", "payload", "params", "request")
# The keys of a prompt's content in all formats: messages, system text, and other text.
_MESSAGES = ("messages", "input", "contents")
_SYSTEM = ("system", "system_instruction", "instructions")
_TEXTS = ("prompt", "completion", "instruction", "output", "history", "conversations")


@dataclass(frozen=True, slots=True)
class LineCounter:
    """A counter of the tokens in lines.

    Args:
        name: The name of the counter, such as ``tiktoken:gpt-4o``.
        counter: The counter.
    """

    name: str
    counter: TokenCounter

    def __call__(self, line: bytes) -> int:
        """Count the tokens of a line's messages, tools and texts, without the names of row and model.

        Args:
            line: The line, as JSON.

        Raises:
            LazyPromptError: The counter cannot count the line.
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
    """Yield the system text and the messages."""
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
    """Yield other texts; messages under their keys are counted as JSON."""
    for key in _TEXTS:
        content = body.get(key)
        if content:
            yield content if isinstance(content, str) else dump(content)
