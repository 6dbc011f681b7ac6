"""Base classes for adapters that create official clients, call them, and classify their errors."""

from __future__ import annotations

import codecs
import os
import re
import sys
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, Lock, get_running_loop, to_thread
from contextlib import aclosing, closing, nullcontext
from importlib.util import find_spec
from inspect import Parameter, signature
from pkgutil import resolve_name
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from lazyprompt import errors
from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, nearest
from lazyprompt.modules.clients._faults import (
    WORDS,
    ErrorResponse,
    Fault,
    MalformedError,
    fault_of,
    kind_of_class,
    mask_in_errors,
    with_origins,
)
from lazyprompt.modules.clients._limits import AnswerLimits, OversizeError, limit_hooks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt._base.secret import SecretText
    from lazyprompt.answers.parser import Delta
    from lazyprompt.modules.clients._faults import FaultKind
    from lazyprompt.prompters.definition import PromptOrigin

# The call parameters that lazyprompt defines for all clients.
COMMON = frozenset(("temperature", "top_p", "max_tokens", "stop", "seed"))
# The hint in error messages from clients that forward unknown fields to the server.
EXTRA_BODY = ", or pass server-specific parameters in extra_body={{{name!r}: ...}}"
# The minimum similarity between a misspelled parameter and a known one: _MISSPELT if the SDK method accepts **kwargs,
# and _LIKELY otherwise. _MISSPELT must exceed 0.8, the similarity of "top_k" and "top_p".
_MISSPELT, _LIKELY = 0.85, 0.6
# The maximum number of connections that a synchronous client opens and keeps alive.
# With a lower limit for idle connections, httpcore could close a connection that another thread is about to use.
CONNECTIONS = 1_000
# The placeholder key for servers without authentication. Clients would otherwise send a key from the environment.
NO_KEY = "none"
# The default limit for the size of a response, in bytes. The largest model responses are about 1 MB.
# A higher limit is unsafe: parsing 16 MB of malicious JSON already uses 700 MB of memory.
MAX_ANSWER_BYTES = 16_777_216
_CARRIED = re.compile("[ -~]*")


class ClientSettings(NamedTuple):
    """The settings of a client.

    Attributes:
        base_url: The server's URL; None for the official client's default.
        key: The API key; None if the server needs no key.
        timeout: The timeout in seconds for a connection, for a response, and for each event in a stream.
        retries: The number of retries after status 408, 409, 429, 5xx or a lost connection.
        options: Additional arguments for the client's constructor.
        max_answer_bytes: The maximum decompressed size of a response or stream event, in bytes.
        output_schemas: True if the server accepts JSON schemas for structured output, False if it doesn't; None if the
            client decides.
    """

    base_url: str | None
    key: Secret | None
    timeout: float
    retries: int
    options: Mapping[str, Any]
    max_answer_bytes: int = MAX_ANSWER_BYTES
    output_schemas: bool | None = None

    @property
    def limits(self) -> AnswerLimits:
        """The limits on the size and duration of a response."""
        return AnswerLimits(self.timeout, self.max_answer_bytes)


class Request(NamedTuple):
    """A request to a model.

    Attributes:
        model: The model's name, as the server expects it.
        payload: The formatter's payload, or ``{"prompt": ...}`` with text or token ids for an engine.
        params: The call arguments in addition to the payload and model, as returned by :meth:`OfficialClient.params`.
        origin: The name and version of the prompt, if it comes from a file or library.
        secrets: The values in the prompt that come from environment variables; logs must mask them.
    """

    model: str
    payload: Mapping[str, Any]
    params: Mapping[str, Any]
    origin: PromptOrigin | None = None
    secrets: tuple[SecretText, ...] = ()


class Collector(Protocol):
    """Collects the events of one stream into a response."""

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in an event from the client's stream. Unknown events and fields are ignored.

        The delta of a tool call contains the call's index in the message. The id of a tool call appears in only one of
        the call's deltas, and so does the name.
        """
        ...

    @property
    def complete(self) -> bool:
        """True if the stream contained its final event."""
        ...

    def answer(self) -> dict[str, Any]:
        """Return the response received so far, in the non-streaming format that ``ChatFormatter.parse`` expects."""
        ...


def key_of(secret: Secret | None) -> str:
    """Return the API key for a header, without surrounding white space.

    Raises:
        ModuleError: The key contains characters that are invalid in a header, and HTTP clients would quote the key in
            their error messages.
    """
    if secret is None:
        return NO_KEY
    # Don't store the key in a local variable, because tracebacks may show local variables.
    if not _CARRIED.fullmatch(secret.reveal().strip()):
        raise ModuleError("the API key contains characters that are invalid in a header; it must be printable ASCII")
    return secret.reveal().strip()


# The lock for importing SDKs and creating clients. The lock is never held during a request.
# Some packages inspect ``sys.modules`` and would see a module that another thread is still importing.
# The lock is reentrant, because imported code may acquire the lock again.
# A fork waits for the lock, because the child process would otherwise inherit a lock that no thread can release.
SETUP = RLock()
if sys.platform != "win32":  # Windows has no fork
    os.register_at_fork(before=SETUP.acquire, after_in_parent=SETUP.release, after_in_child=SETUP.release)


def import_extra(module: str, package: str, *beside: str) -> Any:
    """Import a module from an optional package.

    Args:
        module: The name of the Python module to import.
        package: The name of the package and of the lazyprompt extra that installs it.
        beside: Modules to import first, because the package looks them up in ``sys.modules`` during requests.

    Raises:
        MissingExtraError: The package is not installed.
    """
    with nullcontext() if module in sys.modules else SETUP:
        for each in filter(find_spec, beside):
            errors.import_extra(each, package)
        return errors.import_extra(module, package)


def check_parameters(names: list[str], method: Callable[..., object], called: str, advice: str = "") -> None:
    """Check that a method of an official client accepts the given parameters.

    Without this check, the client would raise a ``TypeError``, or send an unknown parameter that the server ignores.
    For a method with ``**kwargs``, only likely misspellings of its named parameters are errors.

    Raises:
        ModuleError: The client's method does not accept one of the parameters.
    """
    parameters = signature(method).parameters.values()
    known = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD} - {"self"}
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    for unknown in names:
        if unknown in known:
            continue
        near = None if unknown in COMMON else nearest(unknown, known | COMMON, _MISSPELT if takes_any else _LIKELY)
        if near is not None or not takes_any:
            meant = f" (did you mean {near!r}?)" if near else ""
            raise ModuleError(f"{called} does not accept {unknown!r}{meant}; remove it{advice.format(name=unknown)}")


class OfficialClient(ABC):
    """An adapter for a provider's official client, for use in threads and event loops.

    The official client is created on first use. Each event loop needs a separate client, because connections can't be
    shared between event loops.

    Args:
        settings: The client's settings.

    Attributes:
        retries_itself: True if the official client performs the retries, and False if lazyprompt does.
        package: The arguments with which :func:`import_extra` imports the official package.
        method: The method that sends requests, as ``package:Class.method``.
        called: The name of the client's method in error messages.
        advice: The advice to add to error messages about unknown parameters; ``{name}`` stands for the parameter.
        names: The client's names for common parameters, keyed by lazyprompt's names.
        kinds: The kinds of failure that the client's exceptions indicate, keyed by ``package.Name``, with subclasses
            first.
        words: The kinds of failure, keyed by phrases in the server's error messages.
        stumbles: The package whose ``TypeError`` and similar exceptions indicate a malformed response.
        collector: The class that collects stream events.
    """

    retries_itself: bool = False
    package: ClassVar[tuple[str, ...]]
    method: str = ""
    called: str = ""
    advice: str = ""
    names: Mapping[str, str] = {}
    kinds: ClassVar[Mapping[str, FaultKind]] = {}
    words: ClassVar[Mapping[str, FaultKind]] = WORDS
    stumbles: ClassVar[str] = ""
    collector: Callable[[], Collector]

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        # Maps each event loop to its official client. The key None is for synchronous code.
        self._clients: dict[AbstractEventLoop | None, Any] = {}
        # Maps each event loop to a lock that prevents concurrent tasks from creating a client twice.
        self._loops: dict[AbstractEventLoop, Lock] = {}

    def sdk(self) -> Any:
        """Import the official package.

        Raises:
            MissingExtraError: The package is not installed.
        """
        return import_extra(*self.package)

    def client(self, loop: AbstractEventLoop | None = None) -> Any:
        """Return the official asynchronous client for an event loop, or the synchronous client if ``loop`` is None."""
        if (client := self._clients.get(loop)) is not None:
            return client
        with SETUP:
            # Drop the clients of closed event loops, because they can't be closed anymore.
            for each in [each for each in (*self._loops,) if each.is_closed()]:
                self._loops.pop(each, None)
                self._clients.pop(each, None)
            if (client := self._clients.get(loop)) is None:
                # Load the ``idna`` codec now, so that opening a connection doesn't import it while another thread forks
                # the process.
                codecs.lookup("idna")
                self._clients[loop] = client = self._make(in_loop=loop is not None)
            return client

    async def aclient(self) -> Any:
        """Return the official client for the running event loop."""
        loop = get_running_loop()
        if (client := self._clients.get(loop)) is not None:
            return client
        async with self._loops.setdefault(loop, Lock()):
            # Importing an SDK and loading certificates can take a second, so don't block the event loop.
            return self._clients.get(loop) or await to_thread(self.client, loop)

    @abstractmethod
    def _make(self, *, in_loop: bool) -> Any:
        """Create the official client: the asynchronous client if ``in_loop`` is true, else the synchronous client."""

    @abstractmethod
    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        """Call the official client, with ``stream=True`` for a stream. Async clients return an awaitable."""

    def _check(self, answer: Any) -> object:
        """Return a response, or raise an error if it is text instead of parsed JSON."""
        if isinstance(answer, str):
            raise MalformedError(
                f"the server's response is not JSON; check that the URL is an API endpoint: {answer[:200]}"
            )
        return answer

    def _event(self, event: Any) -> object:
        """Return an event. Subclasses raise an exception if the event reports an error."""
        return event

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Rename parameters to the names that the official client uses.

        Args:
            common: The parameters ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a list) and ``seed``, and any
                other parameters under the client's names.

        Raises:
            ModuleError: The client does not accept one of the parameters.
            MissingExtraError: The client is not installed.
        """
        if further := sorted(common.keys() - COMMON):
            self.sdk()
            check_parameters(further, resolve_name(self.method), self.called, self.advice)
        return {self.names.get(name, name): value for name, value in common.items()}

    def output_params(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters that request a JSON schema, or None if the schema must be part of the prompt."""
        return None if self._settings.output_schemas is False else self.structured(schema, name)

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters that request a JSON schema, or None if some models of the API don't support schemas."""
        return None

    def send(self, request: Request) -> object:
        """Send a request and return the official client's response."""
        with mask_in_errors(self._key):
            return self._check(self._ask(self.client(), request))

    async def asend(self, request: Request) -> object:
        """Async version of :meth:`send`; cancelling the task closes the connection."""
        with mask_in_errors(self._key):
            return self._check(await self._ask(await self.aclient(), request))

    def stream(self, request: Request) -> Generator[object]:
        """Yield the events of a streamed response. Closing the generator closes the connection."""
        begun = False
        with mask_in_errors(self._key):
            answer = self._ask(self.client(), request, stream=True)
            with answer if hasattr(answer, "__exit__") else closing(answer) as events:
                for event in events:
                    yield self._event(event)
                    begun = True
            _check_begun(begun=begun)

    async def astream(self, request: Request) -> AsyncGenerator[object]:
        """Async version of :meth:`stream`."""
        begun = False
        with mask_in_errors(self._key):
            answer = await self._ask(await self.aclient(), request, stream=True)
            async with answer if hasattr(answer, "__aexit__") else aclosing(answer) as events:
                async for event in events:
                    yield self._event(event)
                    begun = True
            _check_begun(begun=begun)

    def fault(self, error: Exception) -> Fault | None:
        """Classify a client's exception, or return None for any other exception."""
        oversize = next((each for each in with_origins(error) if isinstance(each, OversizeError)), None)
        if oversize is not None:
            return Fault("too large", str(oversize))
        kind = kind_of_class(error, self.kinds, self.stumbles)
        return None if kind is None else fault_of(kind, error, self._refusal(error), self.words, self._key)

    def _refusal(self, error: Any) -> ErrorResponse:
        """Return the server's response to a failed call, with None in all fields if there was no response."""
        headers = getattr(getattr(error, "response", None), "headers", None)
        return ErrorResponse(getattr(error, "status_code", None), getattr(error, "body", None), headers)

    def close(self) -> None:
        """Close the connections of synchronous calls; :meth:`aclose` closes those of asynchronous calls."""
        if (client := self._clients.pop(None, None)) is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections used by the running event loop."""
        if (client := self._clients.pop(get_running_loop(), None)) is not None:
            await client.close()


def _check_begun(*, begun: bool) -> None:
    if not begun:
        raise MalformedError("the server's stream contains no events; check that the URL is an API endpoint")


class OwnHttpClient(OfficialClient):
    """An adapter for official packages that provide a subclass of httpx's client, such as OpenAI's and Anthropic's.

    Attributes:
        classes: The names of the official sync and async client classes.
    """

    retries_itself = True
    classes: ClassVar[tuple[str, str]]

    def _make(self, *, in_loop: bool) -> Any:
        """Create the official client with an HTTP client that limits responses and follows no redirects.

        A redirect would send the body and all headers except ``Authorization`` to another server. The official client
        retries after every exception except its own. The exception for oversize responses is therefore a subclass of
        the client's base exception.
        """
        base_url, _, timeout, retries, options, *_ = self._settings
        sdk, kind = self.sdk(), "Async" if in_loop else ""
        made: dict[str, Any] = {"base_url": base_url, "timeout": timeout, "max_retries": retries, **options}
        if "http_client" not in options:
            http = getattr(sdk, f"Default{kind}HttpxClient")
            library = sys.modules[http.__mro__[1].__module__.partition(".")[0]]
            oversize = type("Oversize", (OversizeError, getattr(sdk, f"{self.classes[0]}Error")), {})
            hooks = limit_hooks(library, self._settings.limits, {}, in_loop=in_loop, oversize=oversize)
            made["http_client"] = http(follow_redirects=False, event_hooks=hooks)
        return getattr(sdk, self.classes[in_loop])(**{**self._credential(), **made})

    def _credential(self) -> dict[str, str]:
        return {"api_key": key_of(self._key)}
