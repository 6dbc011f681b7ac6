"""What a line of output is: the forms of prompts in bulk, as a table, with the rules of who reads them.

- ``flat``: the flat prompt beside the name of its row; and one for each provider, its payload beside that name.
- ``...-batch``: what the services that work through files of requests read. Each says where its rules are from.
- ``train-...``: what trainers read, as :mod:`lazyprompt.training.samples` writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.errors import BatchError, FormatError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Json, JsonObject

_MB = 1000 * 1000


class Limits(NamedTuple):
    """What one file of a form may hold.

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
    """A form of a line: the name of the row, what is the same in all lines, and the prompt in the form of a provider.

    Args:
        name: Its name.
        provider: The form of the prompt: ``flat``, or a provider; ``""`` for a sample to train with.
        id_key: The key of the row's name; ``""`` where a line has none.
        fields: What stands between the name and the prompt, the same in all lines.
        body_key: The key of the prompt; ``""`` where the prompt is the whole line.
        sample: The form of a sample to train with, as of ``TrainingSample.export``; ``""`` for a prompt.
        has_model: Whether the prompt's body names the model that is to answer.
        needs: The fields that a body must have, and that no prompter knows.
        api: The interface of prompt files that makes the body, as of ``Prompty.request``; ``""`` where it is a
            payload alone.
        ids: The names of rows that it takes.
        limits: What one file may hold.
        change: What becomes of a provider's payload, which is made for its client, in a file.
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

    @property
    def is_request(self) -> bool:
        """Whether a line is a whole request, to which fields as ``max_tokens`` can be added."""
        return bool(self.api)

    def checked_id(self, name: str) -> str:
        """The name of a row, if lines of this form can have it.

        Raises:
            BatchError: They cannot.
        """
        if not name and self.id_key:
            raise BatchError("the name of the row is empty; leave it out, and the row is named by its number")
        if self.ids is not None and not self.ids.fullmatch(name):
            raise BatchError(f"{self.name} takes names of the form {self.ids.pattern}, and the row's is {name!r}")
        return name

    def line(self, name: str, body: Json) -> JsonObject:
        """The object of a line.

        Args:
            name: The name of the row.
            body: The prompt in its form.
        """
        if not self.body_key:
            return cast("JsonObject", body)
        return {self.id_key: name, **self.fields, self.body_key: body}


def _file_of_gemini(body: JsonObject) -> JsonObject:
    """A payload for Google's client as the interface itself has it: there, system text is content with parts.

    The model is named when the file is handed in.
    """
    system = body.get("system_instruction")
    body = {key: value for key, value in body.items() if key != "model"}
    if isinstance(system, str):
        body["system_instruction"] = {"parts": [{"text": system}]}
    return body


def _like_openai(name: str, provider: str, url: str, limits: Limits, api: str = "chat") -> BatchForm:
    """OpenAI's lines, which others have taken over."""
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
    _like_openai(
        "dashscope-batch",
        "vllm",
        "/v1/chat/completions",
        Limits(50_000, 500 * _MB, 6 * _MB, source="https://help.aliyun.com/en/model-studio/batch-inference"),
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
    """A form by its name.

    Args:
        name: One of ``FORMS``; None is ``flat``.

    Raises:
        FormatError: There is no such form.
    """
    form = FORMS.get("flat" if name is None else name)
    if form is None:
        raise FormatError(f"format {name!r} is unknown{did_you_mean(str(name), FORMS)}; known are {', '.join(FORMS)}")
    return form
