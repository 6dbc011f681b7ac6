"""Text Generation Inference, by the official client: ``InferenceClient.text_generation`` of ``huggingface_hub``.

The client keeps each answer open until it is closed itself, so there is one for each call. Those for event loops share
the connections of their loop. Those for threads have none of their own (they are the whole process's, which cannot be
closed for us), so these are not kept.

Sources: the client itself; the router of TGI (``server.rs``, ``validation.rs``) for its forms, errors and limits.
"""

from __future__ import annotations

from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.answers.parser import Delta
from lazyprompt.errors import ModuleError, missing_extra
from lazyprompt.formatters._answers import as_dict
from lazyprompt.modules.client import Fault
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
from lazyprompt.modules.clients._wire import MalformedError, MovedError, aunbroken, hiding, unbroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping

    import httpx
    from huggingface_hub import AsyncInferenceClient, InferenceClient

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import FaultKind, Request, Settings

_KINDS: dict[str, FaultKind] = {
    "lazyprompt.CutError": "cut",
    "lazyprompt.MalformedError": "malformed",
    "lazyprompt.MovedError": "not found",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "httpx.DecodingError": "malformed",
    "huggingface_hub.OverloadedError": "rate limit",
    "huggingface_hub.ValidationError": "request",
    "huggingface_hub.TextGenerationError": "server",
    "huggingface_hub.InferenceTimeoutError": "timeout",
    "huggingface_hub.OfflineModeIsEnabled": "connection",
    "httpx.TimeoutException": "timeout",
    "httpx.TransportError": "connection",
}
# How its router says that a prompt is too long.
_WORDS: dict[str, FaultKind] = {
    "`inputs` tokens + `max_new_tokens` must be <=": "overflow",
    "`inputs` must have less than": "overflow",
}
# True while a call is made in a thread.
_ASKING: ContextVar[bool] = ContextVar("_ASKING", default=False)
_STUMBLES = (TypeError, AttributeError, LookupError, ValueError)


def connect(settings: Settings) -> TgiClient:
    """Text Generation Inference as an engine, for payloads ``{"prompt": text}``.

    Args:
        settings: How the client is to be made. The ``base_url`` is that of the server itself, without a path.

    Returns:
        The client; nothing is imported or connected yet. Its answers are those of the client's ``TextGenerationOutput``
        with the text in ``generated_text``, a stop string that ended it included.

    Raises:
        ModuleError: There is no ``base_url``, or no header can carry the key.
    """
    return TgiClient(settings)


class TgiClient:
    """A server's own endpoint; it serves one model, so the model of a request does not count.

    Args:
        settings: How the client is to be made.
    """

    retries_itself = False

    def __init__(self, settings: Settings) -> None:
        if settings.base_url is None:
            raise ModuleError("Text Generation Inference has no address of its own; give base_url, as http://host:8080")
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._timeout = settings.timeout
        own = dict(settings.options)
        headers = dict(own.pop("headers", {}))
        if settings.key is None:
            headers["authorization"] = None  # so that nothing is sent, not even what the client finds by itself
        self._settings: dict[str, Any] = {
            "base_url": settings.base_url,
            **own,
            "headers": headers,
        }
        self._opened: Opened[type[InferenceClient], _Shared] = Opened(lambda: _clients()[0], _Shared)

    def _made_with(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """The arguments of a client's constructor."""
        from httpx import Timeout  # noqa: PLC0415 - the client's own

        own = dict(self._settings)
        # The client has a hundred connections; the next call waits for one however long the others take.
        own.setdefault("timeout", Timeout(self._timeout, pool=None))
        return {"api_key": key_of(self._key), **own, "headers": {**own["headers"], **headers}}

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Common parameters as TGI has them.

        It samples at a temperature of 1 only if it is told to, and refuses one of 0 and a ``top_p`` of 1.

        Raises:
            ModuleError: ``text_generation`` takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        params = dict(common)
        if further := common.keys() - COMMON:
            check_parameters(sorted(further), _clients()[0].text_generation, "text_generation")
        if "max_tokens" in params:
            params["max_new_tokens"] = params.pop("max_tokens")
        if params.get("top_p") == 1:
            del params["top_p"]
        if "temperature" in params:
            params.setdefault("do_sample", bool(params["temperature"]))
            if not params["temperature"]:
                del params["temperature"]
        return params

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:  # noqa: ARG002 - a schema has no name here
        """The schema as the ``grammar``; TGI asks that it has ``properties``."""
        return {"grammar": {"type": "json", "value": schema}}

    def send(self, request: Request) -> object:
        """A ``TextGenerationOutput``."""
        arguments = _arguments(request)
        with hiding(self._key), self._client() as client:
            return _checked(_asked(client, **arguments, stream=False))

    async def asend(self, request: Request) -> object:
        """The same as :meth:`send`."""
        arguments = _arguments(request)
        shared = await self._opened.aclient()
        with hiding(self._key):
            async with shared.made(**self._made_with({})) as client:
                return _checked(await client.text_generation(**arguments, stream=False))

    def stream(self, request: Request) -> Iterator[object]:
        """Events: a ``TextGenerationStreamOutput`` for each token."""
        arguments = _arguments(request)
        with hiding(self._key), self._client() as client:
            events = cast("Generator[object]", _asked(client, **arguments, stream=True))
            begun = False
            for event in unbroken(events, _cut):
                begun = True
                yield event
            _not_silent(begun)

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The same as :meth:`stream`."""
        arguments = _arguments(request)
        shared = await self._opened.aclient()
        with hiding(self._key):
            async with shared.made(**self._made_with({})) as client:
                events = cast("AsyncGenerator[object]", await client.text_generation(**arguments, stream=True))
                begun = False
                async with aclosing(aunbroken(events, _cut)) as whole:
                    async for event in whole:
                        begun = True
                        yield event
                _not_silent(begun)

    def collector(self) -> TgiCollector:
        """For the events of a stream."""
        return TgiCollector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error of the client means; of one in mid-stream the server tells no status."""
        answer: httpx.Response | None = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
        kind = kind_of_class(error, _KINDS)
        if kind is None and isinstance(error, _STUMBLES) and raised_by(error) == "huggingface_hub":
            kind = "malformed" if answer is None else None
        if kind is None and answer is not None:
            kind = kind_of_status(answer.status_code)
        if kind is None:
            return None
        # The words of the server, where there are some; else those of the client, with its advice for the Hub.
        said = str(getattr(error, "server_message", None) or (told(error) if answer is None else error))
        if kind == "request":
            kind = kind_of_words(said, _WORDS) or kind
        if answer is None:
            return Fault(kind, one_line(said, self._key))
        wait = seconds(answer.headers.get("retry-after"))
        return Fault(kind, one_line(said, self._key), answer.status_code, wait)

    def close(self) -> None:
        """Nothing is kept open between the calls of threads."""
        self._opened.taken()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        shared = self._opened.ataken()
        if shared is not None:
            await shared.http.aclose()

    def _client(self) -> InferenceClient:
        return self._opened.client()(**self._made_with({"connection": "close"}))


def _arguments(request: Request) -> dict[str, Any]:
    prompt = request.payload.get("prompt")
    if not isinstance(prompt, str):
        raise ModuleError(
            "Text Generation Inference takes a prompt as text, not as token ids: it has no API for them; give the "
            "text, or use an engine that takes ids (llama.cpp, vLLM)"
        )
    # TGI repeats the prompt where nothing is said.
    return {"prompt": prompt, "details": True, "return_full_text": False, **request.params}


def _asked(client: InferenceClient, **arguments: Any) -> Any:  # noqa: ANN401 - the client's types end at its overloads
    """Ask without following a redirect; the session is the whole process's, so the hook refuses those of this call."""
    from huggingface_hub import get_session  # noqa: PLC0415 - loaded by now

    session: Any = get_session()
    if _refuse_redirect not in session.event_hooks["response"]:
        hooks = session.event_hooks
        session.event_hooks = {**hooks, "response": [*hooks["response"], _refuse_redirect]}
    token = _ASKING.set(True)
    try:
        return cast("Any", client).text_generation(**arguments)
    finally:
        _ASKING.reset(token)


def _refuse_redirect(response: Any, *, asking: bool | None = None) -> None:  # noqa: ANN401 - of httpx or httpx2
    if (_ASKING.get() if asking is None else asking) and response.has_redirect_location:
        raise MovedError(response.status_code, response.headers["location"])


async def _arefuse_redirect(response: Any) -> None:  # noqa: ANN401 - the same
    _refuse_redirect(response, asking=True)


def _checked(answer: Any) -> object:  # noqa: ANN401 - the client's types end at its overloads
    """An answer that has a text: what is not there, the client takes for None."""
    if not isinstance(answer.generated_text, str):
        raise MalformedError("the answer has no generated_text")
    return answer


def _not_silent(begun: bool) -> None:  # noqa: FBT001 - the one thing there is
    """That there was an event: of a web page, the client says nothing at all."""
    if not begun:
        raise MalformedError("the server answered with no event of a stream, as if it were no TGI")


def _cut(error: Exception, begun: bool) -> bool:  # noqa: FBT001 - as unbroken asks
    # httpx says the same of what is lost within an answer and before one, but in other words.
    return kind_of_class(error, _KINDS) == "connection" and (begun or "message body" in str(error))


def _clients() -> tuple[type[InferenceClient], type[AsyncInferenceClient]]:
    """The client's classes.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        from huggingface_hub import AsyncInferenceClient, InferenceClient  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("huggingface_hub", "tgi") from error
    return InferenceClient, AsyncInferenceClient


class _Shared:
    """The connections of an event loop, and clients that use them; made outside of the loop, since that takes long."""

    def __init__(self) -> None:
        made = _clients()[1]
        from huggingface_hub import get_async_session  # noqa: PLC0415 - loaded by now

        self.http: Any = get_async_session()  # of httpx or httpx2, as the client's version has it
        hooks = self.http.event_hooks
        self.http.event_hooks = {**hooks, "response": [*hooks["response"], _arefuse_redirect]}

        async def lent(_client: AsyncInferenceClient) -> Any:  # noqa: ANN401 - the same
            return self.http

        # Without this, a client opens connections of its own, and closes them: right as well, but slow.
        self.made: type[AsyncInferenceClient] = type(
            made.__name__, (made,), {"_get_async_client": lent, "__module__": made.__module__}
        )


class TgiCollector:
    """Puts the tokens of a stream together."""

    __slots__ = ("_last", "_text", "_tokens")

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._text = ""
        self._tokens: list[dict[str, Any]] = []

    @property
    def complete(self) -> bool:
        """Whether the last token came: the whole text comes with it."""
        return isinstance(self._last.get("generated_text"), str)

    def feed(self, event: object) -> list[Delta]:
        """What is new; special tokens (an end of the turn) are no text, as they are none without streaming."""
        said: dict[str, Any] = as_dict(event)
        token: dict[str, Any] = dict(said.get("token") or ())
        self._last = said
        if token:
            self._tokens.append(token)
        new: str = "" if token.get("special") else token.get("text") or ""
        whole: str = said.get("generated_text") or ""
        if whole.startswith(self._text + new):
            new = whole[len(self._text) :]  # what was left of half a character
        self._text += new
        return [Delta("text", new)] if new else []

    def answer(self) -> dict[str, Any]:
        """The text, and the ``details`` of an answer that is not streamed."""
        details: dict[str, Any] = self._last.get("details") or {}
        return {
            "generated_text": self._text,
            "details": {**details, "prefill": [], "tokens": list(self._tokens)},
        }
