"""DashScope's own API, by its official client ``dashscope``: text, and text with pictures, sound and video.

The client returns refusals, which become :class:`DashScopeError` here. It is given a session of its own for each call,
over connections that are kept: so nothing of it is shared, and the answer of a stream is at hand to be closed. It would
send a request once more where a connection was lost, or too slow, though an answer may be paid for already; its
sessions keep it from that, too.

Sources: the references of the API and of its error codes (help.aliyun.com/zh/model-studio/error-code), and the client.
"""

from __future__ import annotations

from asyncio import timeout
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._base import COMMON, OfficialClient, Request, Settings, check_parameters, key_of
from lazyprompt.modules.clients._faults import REDIRECTS, MalformedError, MovedError, fault_of, kind_of_class
from lazyprompt.modules.clients.openai import ChatCollector, fields_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping, Sequence

    import aiohttp
    import requests

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.parser import Delta
    from lazyprompt.modules.clients._faults import Fault, FaultKind

_OK, _MADE_UP = 200, 400
# Connections that are kept for later; more may be open, and none waits for another.
_KEPT = 1_000
# Half as long as an event may be; one may hold a picture.
_LINE = 2**20
# Codes, and the words of an InvalidParameter.
_WORDS: dict[str, FaultKind] = {
    "invalidapikey": "key",
    "accessdenied": "key",
    "arrearage": "key",  # the account owes money: waiting does not help
    "modelnotfound": "not found",
    "model_not_found": "not found",
    "badrequest.toolarge": "overflow",
    "throttling": "rate limit",
    "allocationquota": "rate limit",
    "requesttimeout": "timeout",
    "internalerror.timeout": "timeout",
    "input length": "overflow",
    "context length": "overflow",
    "model not exist": "not found",
    "url error": "not found",  # the model is served by the other of the two APIs
}
# Codes that count in mid-stream, where they are all there is: the client does not read the status.
_MID_STREAM: dict[str, FaultKind] = {
    **_WORDS,
    **dict.fromkeys(("internalerror", "modelunavailable", "modelserving", "serviceunavailable"), "server"),
}


class DashScopeError(Exception):
    """An answer that is a refusal.

    Args:
        answer: The answer, as the client returned it.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        headers = {name.lower(): str(value) for name, value in fields_of(answer.get("headers")).items()}
        code, message = str(answer.get("code") or ""), str(answer.get("message") or "")
        super().__init__(f"{code}: {message or code}")
        self.body, self.response = {"code": code, "message": message or code}, SimpleNamespace(headers=headers)
        self.location, status = headers.get("location"), int(answer.get("status_code") or 0)
        # The client says 400 of all that goes wrong in mid-stream, for it does not read what the server says there.
        self.streamed = headers.get("content-type", "").startswith("text/event-stream")
        self.status_code = None if self.streamed and status == _MADE_UP else status


class DashScopeCollector(ChatCollector):
    """Puts the events of a stream together, which have the parts of OpenAI's events elsewhere."""

    __slots__ = ("_last", "_parts")

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, object] = {}
        # What is no text in a content of parts; None while there was no such content.
        self._parts: list[object] | None = None

    def feed(self, event: object) -> list[Delta]:
        """Return what is new."""
        self._last = dict(fields_of(plain(event)))
        choices = fields_in(fields_of(self._last.get("output")).get("choices"))
        choice: Mapping[str, object] = choices[0] if choices else {}
        message, finish = fields_of(choice.get("message")), choice.get("finish_reason")
        content: object = message.get("content")
        if isinstance(content, list):
            found = fields_in(cast("object", content))
            self._parts = [*(self._parts or ()), *(part for part in found if part and "text" not in part)]
        # "null" is a word here, as the server writes it.
        return super().feed({"choices": [{"delta": message, "finish_reason": None if finish == "null" else finish}]})

    def answer(self) -> dict[str, Any]:
        """Return the last event with the whole message."""
        choice = super().answer()["choices"][0]
        message, text = choice["message"], choice["message"]["content"] or ""
        parts = [*([{"text": text}] if text else []), *(self._parts or ())]
        message["content"] = text if self._parts is None else parts
        return {**self._last, "output": {"choices": [{"finish_reason": choice["finish_reason"], "message": message}]}}


class DashScopeClient(OfficialClient):
    """One of DashScope's two APIs.

    Args:
        settings: The settings. The official client has no constructor, so ``options`` go with each call. Without a
            ``base_url``, the server is that of the client's own settings.
        api: The client's class for threads; that for event loops is called the same with ``Aio`` before it.

    Raises:
        ModuleError: No header can carry the key.
    """

    package = ("dashscope", "dashscope")
    collector = DashScopeCollector
    stumbles = "dashscope"
    kinds: ClassVar[Mapping[str, FaultKind]] = {
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
        "lazyprompt.DashScopeError": "request",
    }

    def __init__(self, settings: Settings, api: str) -> None:
        super().__init__(settings)
        self._api = api

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, which have the client's names already.

        Raises:
            ModuleError: A name looks like a misspelling; other unknown names go to the server.
            MissingExtraError: The client is not installed.
        """
        if further := sorted(common.keys() - COMMON):
            check_parameters(further, self._class(self._api).call, f"{self._api}.call")
        return dict(common)

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the ``response_format`` of OpenAI's form, which Qwen's models take as well."""
        named = {"name": name, "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}

    def _make(self, *, in_loop: bool) -> _Lines | _AsyncLines:
        if in_loop:
            return _AsyncLines(self._class(f"Aio{self._api}"), self._settings.timeout)
        return _Lines(self._class(self._api))

    def _class(self, name: str) -> Any:
        """Return a class of the client that reads no files.

        Raises:
            ModuleError: It takes no sessions, or would read files and there is no saying no.
        """
        sdk = self.sdk()
        api = getattr(sdk, name, None)
        takes_sessions = find_spec("dashscope.api_entities.aio_session") is not None
        reads_files = "MultiModal" in name
        if api is None or not takes_sessions or (reads_files and not hasattr(api, "_preprocess_messages")):
            raise ModuleError(
                f"dashscope {getattr(sdk, '__version__', '')} is not known to lazyprompt, and might upload whatever a "
                "user says that is the path of a file; use dashscope 2.0"
            )
        if not reads_files:
            return api
        # It looks whether any text of the user is the path of a file, and uploads the file in its place.
        return type(name, (api,), {"_preprocess_messages": staticmethod(_refers_to_oss), "__module__": api.__module__})

    def _lend(self, client: Any) -> Any:
        return client.session()

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        call, session = client
        return call(
            **self._arguments(request), session=session, **stream, **({"incremental_output": True} if stream else {})
        )

    def _arguments(self, request: Request) -> dict[str, Any]:
        own = self._settings.options
        return {
            "model": request.model,
            "api_key": key_of(self._key),
            "base_address": self._settings.base_url,
            "request_timeout": self._settings.timeout,
            "result_format": "message",
            **own,
            "headers": dict(own.get("headers") or {}),  # a copy: the client writes into it
            **request.payload,
            **request.params,
        }

    def _check(self, answer: Any) -> object:
        """Return an answer that is no refusal."""
        if answer.get("status_code") == _OK:
            return answer
        error = DashScopeError(answer)
        # What is no JSON in a stream, the client hands on under this code, with a status of its own making.
        if error.streamed and answer.get("code") == "Unknown":
            raise MalformedError(error.body["message"])
        raise error

    def _event(self, event: Any) -> object:
        return self._check(event)

    def fault(self, error: Exception) -> Fault | None:
        """Return the meaning of an error of the client, or of a refusal."""
        # requests packs what urllib3 says, a time that ran out in mid-answer among it, into an error of its own.
        inner = next((each for each in error.args[:1] if isinstance(each, Exception)), error)
        kind = kind_of_class(inner, self.kinds) or kind_of_class(error, self.kinds, self.stumbles)
        refusal = self._refusal(error)
        words = _MID_STREAM if refusal.status is None else _WORDS
        return None if kind is None else fault_of(kind, error, refusal, words, self._key)


def _refers_to_oss(_model: str, messages: Sequence[Mapping[str, Any]], _key: str | None) -> bool:
    """Return True if something lies in DashScope's own store, of which the client tells the server in a header."""
    parts = [part for message in messages for part in fields_in(message["content"])]
    media = [value for part in parts for key, value in part.items() if key != "text"]
    addresses = [
        one for value in media for one in (cast("list[object]", value) if isinstance(value, list) else [value])
    ]
    return any(isinstance(one, str) and one.startswith("oss://") for one in addresses)


class _Lines:
    """The method of an API, and the connections of threads."""

    def __init__(self, api: Any) -> None:
        self._call = api.call
        self._adapter = import_module("requests.adapters").HTTPAdapter(pool_maxsize=_KEPT)

    @contextmanager
    def session(self) -> Generator[tuple[Any, Any]]:
        """Lend a session for one call; its answer is closed, that of a stream not at its end as well."""
        http = import_module("requests")
        answers: list[requests.Response] = []
        session = http.Session()
        session.mount("https://", self._adapter)
        session.mount("http://", self._adapter)
        send = session.send

        def once(request: requests.PreparedRequest, **options: Any) -> requests.Response:
            """Send a request; a lost connection, or a slow one, has a name here that the client does not know."""
            try:
                answers.append(send(request, **{**options, "allow_redirects": False}))
            except http.ConnectionError as error:
                known = http.Timeout if isinstance(error, http.Timeout) else http.RequestException
                raise known(*error.args) from error
            return answers[-1]

        session.send = once
        try:
            yield self._call, SimpleNamespace(post=session.post)
        finally:
            for answer in answers:
                answer.close()

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()


class _AsyncLines:
    """The method of an API, and the connections of an event loop; made outside of it, since that takes long.

    Args:
        api: The API.
        limit: Seconds until an answer begins: of streams, the client sets no limit for the connection.
    """

    def __init__(self, api: Any, limit: float) -> None:
        self._call, self._limit = api.call, limit
        # The client's own certificates, and one context for all.
        self._ssl = import_module("dashscope.api_entities.aio_session").get_ssl_context()
        self._connector: aiohttp.TCPConnector | None = None

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Lend a session for one call; its answer is closed."""
        http = import_module("aiohttp")
        connector = self._connector = self._connector or http.TCPConnector(ssl=self._ssl, limit=0)
        answers: list[aiohttp.ClientResponse] = []

        async def once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            try:
                async with timeout(self._limit):
                    answer = await handler(request)
            except http.ClientConnectionError as error:
                raise http.ClientError(*error.args) from error
            answers.append(answer)
            if answer.status in REDIRECTS:
                raise MovedError(answer.status, answer.headers.get("location", ""))
            return answer

        # It keeps to the environment's proxies, as that of threads.
        known = {"connector_owner": False, "trust_env": True, "middlewares": (once,), "read_bufsize": _LINE}
        try:
            async with http.ClientSession(connector=connector, **known) as session:
                yield self._call, session
        finally:
            for answer in answers:
                answer.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._connector is not None:
            await self._connector.close()


connect = partial(DashScopeClient, api="Generation")
connect_multimodal = partial(DashScopeClient, api="MultiModalConversation")
