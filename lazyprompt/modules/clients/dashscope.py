"""DashScope's own API, by its official client ``dashscope``: text, and text with pictures, sound and video.

The client returns refusals, which become :class:`DashScopeError` here.

Sources: the references of the API and of its error codes (help.aliyun.com/zh/model-studio/error-code), and the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.answers.parser import Delta
from lazyprompt.formatters._answers import as_dict
from lazyprompt.modules.client import Fault
from lazyprompt.modules.clients._dashscope_lines import AsyncLines, Lines, api_of
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._parameters import COMMON, check_parameters
from lazyprompt.modules.clients._said import (
    kind_of_class,
    kind_of_status,
    kind_of_words,
    one_line,
    raised_by,
    seconds,
    told,
)
from lazyprompt.modules.clients._wire import aunbroken, hiding, unbroken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import FaultKind, Request, Settings

_OK, _MADE_UP = 200, 400
_KINDS: dict[str, FaultKind] = {
    "lazyprompt.CutError": "cut",
    "lazyprompt.MovedError": "not found",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "requests.JSONDecodeError": "malformed",
    "aiohttp.ContentTypeError": "malformed",
    "aiohttp.LineTooLong": "malformed",
    "urllib3.ReadTimeoutError": "timeout",
    "requests.Timeout": "timeout",
    "builtins.TimeoutError": "timeout",
    "requests.RequestException": "connection",
    "aiohttp.ClientError": "connection",
    "dashscope.AuthenticationError": "key",
    "dashscope.DashScopeException": "request",
}
# What is raised only when an answer has begun.
_WITHIN: dict[str, FaultKind] = {"requests.ChunkedEncodingError": "cut", "aiohttp.ClientPayloadError": "cut"}
# Codes as they begin. In mid-stream they are all there is: the client does not read the status there.
_CODES: dict[str, FaultKind] = {
    "InvalidApiKey": "key",
    "AccessDenied": "key",
    "Model.AccessDenied": "key",
    "Workspace.AccessDenied": "key",
    "Arrearage": "key",  # the account owes money: waiting does not help
    "ModelNotFound": "not found",
    "model_not_found": "not found",
    "BadRequest.TooLarge": "overflow",
    "Throttling": "rate limit",
    "AllocationQuota": "rate limit",
    "RequestTimeOut": "timeout",
    "InternalError.Timeout": "timeout",
    "InternalError": "server",
    "ModelUnavailable": "server",
    "ModelServing": "server",
    "ServiceUnavailable": "server",
}
# What an InvalidParameter is about.
_WORDS: dict[str, FaultKind] = {
    "range of input length should be": "overflow",
    "input length": "overflow",
    "context length": "overflow",
    "model not exist": "not found",
    "url error": "not found",  # the model is served by the other of the two APIs
}
_STUMBLES = (TypeError, AttributeError, LookupError, ValueError)


class DashScopeError(Exception):
    """An answer that is a refusal.

    Args:
        answer: What the client returned.
        key: The key, which is not to be quoted.
    """

    def __init__(self, answer: Mapping[str, Any], key: Secret | None) -> None:
        headers = {name.lower(): str(value) for name, value in _fields(answer.get("headers")).items()}
        self.code = str(answer.get("code") or "")
        streamed = headers.get("content-type", "").startswith("text/event-stream")
        # What is no JSON in a stream, the client hands on under this code, with a status of its own making.
        self.malformed = streamed and self.code == "Unknown"
        status = int(answer.get("status_code") or 0)
        # It says 400 of all that goes wrong in mid-stream, since it does not read what the server says there.
        self.status_code, self.location = status, headers.get("location")
        self.status = None if self.malformed or (streamed and status == _MADE_UP) else status
        self.retry_after = seconds(headers.get("retry-after"))
        self.message = one_line(str(answer.get("message") or self.code), key)
        super().__init__(f"{self.code}: {self.message}")

    @property
    def kind(self) -> FaultKind:
        """What it means."""
        if self.malformed:
            return "malformed"
        code = next((code for code in _CODES if self.code.startswith(code)), None)
        if code and not (self.status and _CODES[code] == "server"):  # there, a status tells more
            return _CODES[code]
        return kind_of_words(self.message, _WORDS) or kind_of_status(self.status or _MADE_UP)


def connect(settings: Settings) -> DashScopeClient:
    """DashScope's text generation, for the payloads of ``ChatFormatter("dashscope")``.

    Args:
        settings: How the client is to be made; it has no constructor, so ``options`` go with each call. Without a
            ``base_url``, it asks where its own settings say.

    Returns:
        The client; nothing is imported or connected yet.

    Raises:
        ModuleError: No header can carry the key.
    """
    return DashScopeClient(settings, "Generation")


def connect_multimodal(settings: Settings) -> DashScopeClient:
    """The same as :func:`connect` for the payloads of ``ChatFormatter("dashscope-multimodal")``."""
    return DashScopeClient(settings, "MultiModalConversation")


class DashScopeClient:
    """One of DashScope's two APIs.

    Args:
        settings: How the client is to be made.
        api: The client's class for threads; that for event loops is called the same with ``Aio`` before it.
    """

    retries_itself = False

    def __init__(self, settings: Settings, api: str) -> None:
        # Without one, the client would look for a key in its environment and in a file.
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._settings = settings
        self._api = api
        self._opened: Opened[Lines, AsyncLines] = Opened(
            lambda: Lines(api), lambda: AsyncLines(f"Aio{api}", settings.timeout)
        )

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, which have the client's names already.

        Raises:
            ModuleError: A name looks like a misspelling; other unknown names go to the server.
            MissingExtraError: The client is not installed.
        """
        if further := common.keys() - COMMON:
            check_parameters(sorted(further), api_of(self._api).call, f"{self._api}.call")
        return dict(common)

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """The ``response_format`` of OpenAI's form, which Qwen's models take as well."""
        return {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": schema, "strict": True},
            }
        }

    def send(self, request: Request) -> object:
        """A ``GenerationResponse`` or ``MultiModalConversationResponse``."""
        lines = self._opened.client()
        with hiding(self._key), lines.session() as session:
            return self._checked(lines.call(**self._arguments(request), session=session))

    async def asend(self, request: Request) -> object:
        """The same as :meth:`send`."""
        lines = await self._opened.aclient()
        with hiding(self._key):
            async with lines.session() as session:
                return self._checked(await lines.call(**self._arguments(request), session=session))

    def stream(self, request: Request) -> Iterator[object]:
        """Events, which are answers as well, with what is new in each."""
        lines = self._opened.client()
        with hiding(self._key), lines.session() as session:
            events = lines.call(**self._arguments(request), session=session, stream=True, incremental_output=True)
            for event in unbroken(events, _cut):
                yield self._checked(event)

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The same as :meth:`stream`."""
        lines = await self._opened.aclient()
        with hiding(self._key):
            async with lines.session() as session:
                call = lines.call(**self._arguments(request), session=session, stream=True, incremental_output=True)
                async with aclosing(aunbroken(await call, _cut)) as whole:
                    async for event in whole:
                        yield self._checked(event)

    def collector(self) -> DashScopeCollector:
        """For the events of both APIs."""
        return DashScopeCollector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error of the client, or a refusal, means."""
        if isinstance(error, DashScopeError):
            return Fault(error.kind, error.message, error.status, error.retry_after)
        kind = _kind(error)
        if kind is None and isinstance(error, _STUMBLES) and raised_by(error) == "dashscope":
            kind = "malformed"
        return None if kind is None else Fault(kind, one_line(told(error), self._key))

    def close(self) -> None:
        """Close the connections of threads."""
        lines = self._opened.taken()
        if lines is not None:
            lines.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        lines = self._opened.ataken()
        if lines is not None:
            await lines.close()

    def _arguments(self, request: Request) -> dict[str, Any]:
        settings = self._settings
        own = dict(settings.options)
        return {
            "model": request.model,
            "api_key": key_of(self._key),
            "base_address": settings.base_url,
            "request_timeout": settings.timeout,
            "result_format": "message",
            **own,
            "headers": dict(own.get("headers") or {}),  # a copy: the client writes into it
            **request.payload,
            **request.params,
        }

    def _checked(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """An answer that is no refusal."""
        if answer.get("status_code") != _OK:
            raise DashScopeError(answer, self._key)
        return answer


def _kind(error: Exception) -> FaultKind | None:
    # requests packs what urllib3 says, a time that ran out in mid-answer among it, into an error of its own.
    inner = error.args[0] if error.args and isinstance(error.args[0], Exception) else error
    return kind_of_class(inner, _KINDS) or kind_of_class(error, _KINDS)


def _cut(error: Exception, begun: bool) -> bool:  # noqa: FBT001 - as unbroken asks
    return _kind(error) == "connection" and (begun or kind_of_class(error, _WITHIN) is not None)


class DashScopeCollector:
    """Puts the events of a stream together."""

    __slots__ = ("_calls", "_finish", "_last", "_parts", "_text", "_thinking")

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._finish: str | None = None
        self._thinking: list[str] = []
        self._text: list[str] = []
        # What is no text in a content of parts; None while there was no such content.
        self._parts: list[Any] | None = None
        self._calls: dict[int, dict[str, Any]] = {}

    @property
    def complete(self) -> bool:
        """Whether an event said why the answer ended."""
        return self._finish is not None

    def feed(self, event: object) -> list[Delta]:
        """What is new."""
        self._last = said = as_dict(event)
        output = _fields(said.get("output"))
        choice = _fields(next(iter(output.get("choices") or ()), None))
        message = _fields(choice.get("message"))
        finish = choice.get("finish_reason")
        if finish not in {None, "", "null"}:  # the word, as the server writes it
            self._finish = str(finish)
        thinking = message.get("reasoning_content") or ""
        text = self._text_of(message.get("content"))
        self._thinking.append(thinking)
        self._text.append(text)
        deltas = [Delta("thinking", thinking)] * bool(thinking) + [Delta("text", text)] * bool(text)
        calls = [_fields(call) for call in message.get("tool_calls") or ()]
        return deltas + [self._piece(call, at) for at, call in enumerate(calls)]

    def answer(self) -> dict[str, Any]:
        """The last event with all that was said."""
        text = "".join(self._text)
        content: object = text
        if self._parts is not None:
            content = [{"text": text}, *self._parts] if text else list(self._parts)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if any(self._thinking):
            message["reasoning_content"] = "".join(self._thinking)
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        return {**self._last, "output": {"choices": [{"finish_reason": self._finish, "message": message}]}}

    def _text_of(self, content: object) -> str:
        if not isinstance(content, list):
            return content if isinstance(content, str) else ""
        parts = [_fields(part) for part in cast("list[object]", content)]
        self._parts = [*(self._parts or ()), *(part for part in parts if part and "text" not in part)]
        return "".join(str(part["text"]) for part in parts if "text" in part)

    def _piece(self, call: Mapping[str, Any], at: int) -> Delta:
        """A piece of a call: id and name come with the first, and are empty after that."""
        index = int(call.get("index", at))
        function = _fields(call.get("function"))
        name, new = function.get("name") or "", function.get("arguments") or ""
        first = index not in self._calls
        whole = self._calls.setdefault(
            index, {"index": index, "id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        whole["id"] = whole["id"] or call.get("id") or ""
        whole["function"]["name"] = whole["function"]["name"] or name
        whole["function"]["arguments"] += new
        return Delta("tool_call", new, index, whole["id"] or None, whole["function"]["name"] if first else None)


def _fields(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
