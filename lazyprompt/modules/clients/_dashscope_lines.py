"""DashScope's client, kept from reading files, and the connections it is lent.

It is given a session of its own for each call, over connections that are kept: so nothing of it is shared, and the
answer of a stream is at hand to be closed. It would send a request once more where a connection was lost, or too slow,
though an answer may be paid for already; its sessions keep it from that, too.
"""

from __future__ import annotations

from asyncio import timeout
from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.errors import ModuleError, missing_extra
from lazyprompt.modules.clients._wire import REDIRECTS, MovedError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Generator, Sequence

    import aiohttp
    import requests
    from requests.adapters import HTTPAdapter

# Connections that are kept for later; more may be open, and none waits for another.
_KEPT = 1_000
# Half as long as an event may be; one may hold a picture.
_LINE = 2**20


def api_of(name: str) -> Any:  # noqa: ANN401 - a class of the client's, which has no types
    """A class of the client.

    Raises:
        MissingExtraError: The client is not installed.
        ModuleError: It takes no sessions, or would read files and there is no saying no.
    """
    try:
        dashscope = import_module("dashscope")
    except ImportError as error:
        raise missing_extra("dashscope", "dashscope") from error
    api = getattr(dashscope, name, None)
    takes_sessions = find_spec("dashscope.api_entities.aio_session") is not None
    reads_files = "MultiModal" in name
    if api is None or not takes_sessions or (reads_files and not hasattr(api, "_preprocess_messages")):
        raise ModuleError(
            f"dashscope {getattr(dashscope, '__version__', '')} is not known to lazyprompt, and might upload whatever "
            "a user says that is the path of a file; use dashscope 2.0"
        )
    if not reads_files:
        return api
    # It looks whether any text of the user is the path of a file, and uploads the file in its place.
    return type(name, (api,), {"_preprocess_messages": staticmethod(_refers_to_oss), "__module__": api.__module__})


def _refers_to_oss(_model: str, messages: Sequence[Mapping[str, Any]], _key: str | None) -> bool:
    """Whether something lies in DashScope's own store, of which the client tells the server in a header."""
    parts = [part for message in messages for part in cast("list[Mapping[str, object] | str]", message["content"])]
    media = [value for part in parts if isinstance(part, Mapping) for key, value in part.items() if key != "text"]
    addresses = [
        one for value in media for one in (cast("list[object]", value) if isinstance(value, list) else [value])
    ]
    return any(isinstance(one, str) and one.startswith("oss://") for one in addresses)


class Lines:
    """The API and the connections of threads.

    Args:
        name: The class of the API.
    """

    def __init__(self, name: str) -> None:
        self.call = api_of(name).call
        from requests.adapters import HTTPAdapter  # noqa: PLC0415 - the client's own, and heavy

        self._adapter: HTTPAdapter = HTTPAdapter(pool_maxsize=_KEPT)

    @contextmanager
    def session(self) -> Generator[_Session]:
        """A session for one call; its answer is closed, the connections stay."""
        session = _Session(self._adapter)
        try:
            yield session
        finally:
            session.close()

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()


class _Session:
    """What the client needs of a session of requests.

    Args:
        adapter: The connections.
    """

    def __init__(self, adapter: HTTPAdapter) -> None:
        import requests  # noqa: PLC0415 - loaded by now

        self._answers: list[requests.Response] = []
        session = requests.Session()
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        self._plain_send = session.send
        session.send = self._send  # type: ignore[method-assign]  # the request it is given does not show its headers
        self.post = session.post

    def _send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # noqa: ANN401 - as requests gives them
        """Send a request, once: a lost connection, or a slow one, has a name here that the client does not know."""
        import requests  # noqa: PLC0415 - loaded by now

        try:
            options["allow_redirects"] = False
            answer = self._plain_send(request, **options)
        except requests.ConnectionError as error:
            known = requests.Timeout if isinstance(error, requests.Timeout) else requests.RequestException
            raise known(*error.args) from error
        self._answers.append(answer)
        return answer

    def close(self) -> None:
        """Close the answers: the connection of one that is not at its end as well."""
        for answer in self._answers:
            answer.close()


class AsyncLines:
    """The API and the connections of an event loop; made outside of it, since that takes long.

    Args:
        name: The class of the API.
        limit: Seconds until an answer begins: of streams, the client sets no limit for the connection.
    """

    def __init__(self, name: str, limit: float) -> None:
        self.call = api_of(name).call
        self._limit = limit
        # The client's own certificates, and one context for all.
        self._ssl: ssl.SSLContext = import_module("dashscope.api_entities.aio_session").get_ssl_context()
        self._connector: aiohttp.TCPConnector | None = None

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """The same as that of threads."""
        import aiohttp  # noqa: PLC0415 - loaded by now

        if self._connector is None:
            self._connector = aiohttp.TCPConnector(ssl=self._ssl, limit=0)
        answers: list[aiohttp.ClientResponse] = []

        async def once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            try:
                async with timeout(self._limit):
                    answer = await handler(request)
            except aiohttp.ClientConnectionError as error:
                raise aiohttp.ClientError(*error.args) from error
            answers.append(answer)
            if answer.status in REDIRECTS:
                raise MovedError(answer.status, answer.headers.get("location", ""))
            return answer

        try:
            async with aiohttp.ClientSession(
                connector=self._connector,
                connector_owner=False,
                trust_env=True,
                middlewares=(once,),
                read_bufsize=_LINE,
            ) as session:
                yield session
        finally:
            for answer in answers:
                answer.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._connector is not None:
            await self._connector.close()
