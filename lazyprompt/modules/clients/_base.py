"""The base of all clients: official clients created on first use, calls, streams, parameters and faults."""

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

# The parameters that modules define: every client accepts them, or raises an error that says why not.
COMMON = frozenset(("temperature", "top_p", "max_tokens", "stop", "seed"))
# Advice for clients that pass on unknown fields to the server.
EXTRA_BODY = ", or give what only the server knows in extra_body={{{name!r}: ...}}"
# The minimum similarity of a misspelling, if other names are allowed and if not ("top_k" and "top_p" have 0.8).
_MISSPELT, _LIKELY = 0.85, 0.6
# The connections that a client for threads opens and keeps. httpcore closes idle connections beyond the number to keep,
# even one that it has just given to another thread, whose call then fails with a bad file descriptor.
CONNECTIONS = 1_000
# The placeholder for servers without keys: otherwise, clients would send a key from the environment.
NO_KEY = "none"
# The longest answers of models have about 1 MB. Malicious JSON of this size takes 700 MB of memory.
MAX_ANSWER_BYTES = 16_777_216
_CARRIED = re.compile("[ -~]*")


class ClientSettings(NamedTuple):
    """The settings of a client.

    Attributes:
        base_url: The server's address; None for the official client's default.
        key: The key; None for a server without keys.
        timeout: The timeout in seconds of a connection, of an answer, and of each event of a stream.
        retries: The number of retries after status 408, 409, 429, 5xx or a lost connection.
        options: Other arguments of the client's constructor.
        max_answer_bytes: The decompressed size limit of an answer, and of each event of a stream.
    """

    base_url: str | None
    key: Secret | None
    timeout: float
    retries: int
    options: Mapping[str, Any]
    max_answer_bytes: int = MAX_ANSWER_BYTES

    @property
    def limits(self) -> AnswerLimits:
        """The limits of an answer."""
        return AnswerLimits(self.timeout, self.max_answer_bytes)


class Request(NamedTuple):
    """A request.

    Attributes:
        model: The model's name at the source.
        payload: A formatter's payload, or ``{"prompt": ...}`` for engines, with flat text or token ids.
        params: Other arguments of the call, as :meth:`OfficialClient.params` returns them.
        origin: The name and version of a prompt from a file or library.
        secrets: The prompt's values from the environment.
    """

    model: str
    payload: Mapping[str, Any]
    params: Mapping[str, Any]
    origin: PromptOrigin | None = None
    secrets: tuple[SecretText, ...] = ()


class Collector(Protocol):
    """Collects the events of one stream."""

    def feed(self, event: object) -> list[Delta]:
        """Return the new pieces in an event of the client's stream; ignore unknown events and fields.

        Pieces of a call have its index in the message, and its id and name once they are known.
        """
        ...

    @property
    def complete(self) -> bool:
        """True if the stream had its final event; else it was cut."""
        ...

    def answer(self) -> dict[str, Any]:
        """Return the answer so far in the form of an answer that is not streamed, for ``ChatFormatter.parse``."""
        ...


def key_of(secret: Secret | None) -> str:
    """Return a key for a header, without surrounding white space.

    Raises:
        ModuleError: The key has characters that are invalid in a header; HTTP clients would quote it in their errors.
    """
    if secret is None:
        return NO_KEY
    # Keep the key out of variables, which tracebacks may show.
    if not _CARRIED.fullmatch(secret.reveal().strip()):
        raise ModuleError("the key has characters that are invalid in a header; keys are printable ASCII")
    return secret.reveal().strip()


# Held while an official package is imported or a client is created, never during a request. Some packages inspect
# ``sys.modules`` and would see a module that another thread is still importing. Reentrant, since imports can run code
# that needs it. Forks wait for it: a child would inherit the locked lock.
SETUP = RLock()
if sys.platform != "win32":  # without fork
    os.register_at_fork(before=SETUP.acquire, after_in_parent=SETUP.release, after_in_child=SETUP.release)


def import_extra(module: str, package: str, *beside: str) -> Any:
    """Import a module of an optional package, which is slow.

    Args:
        module: The module.
        package: The package to install, and the name of the extra.
        beside: Modules to import first, which the package looks up in ``sys.modules`` during requests.

    Raises:
        MissingExtraError: The package is not installed.
    """
    with nullcontext() if module in sys.modules else SETUP:
        for each in filter(find_spec, beside):
            errors.import_extra(each, package)
        return errors.import_extra(module, package)


def check_parameters(names: list[str], method: Callable[..., object], called: str, advice: str = "") -> None:
    """Check that a method of an official client has the given parameters.

    Otherwise, the client would raise a ``TypeError``, or send the parameter to a server that ignores it. For a method
    with ``**kwargs``, only likely misspellings of its own parameters are errors.

    Raises:
        ModuleError: The method has no such parameter.
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
            raise ModuleError(f"{called} takes no {unknown!r}{meant}; leave it out{advice.format(name=unknown)}")


class OfficialClient(ABC):
    """A provider's client for threads and event loops, built on the official client.

    The official client is created on first use. Connections belong to an event loop, so each loop has its own client.

    Args:
        settings: The settings.

    Attributes:
        retries_itself: True if the official client retries (``ClientSettings.retries``); else the module does.
        package: The official package, as arguments of :func:`import_extra`.
        method: The method that has the parameters, as ``package:Class.method``.
        called: The name of that method in errors.
        advice: The errors' advice for parameters that only the server knows; ``{name}`` is the parameter.
        names: The client's names of common parameters that differ.
        kinds: The kinds of its errors by ``package.Name``, subclasses first.
        words: The kinds of errors by phrases in the server's messages.
        stumbles: The package whose ``TypeError`` or similar error means a malformed answer.
        collector: The class that collects the events of a stream.
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
        # The clients by event loop, None for threads; and the lock with which a loop's tasks wait for their client.
        self._clients: dict[AbstractEventLoop | None, Any] = {}
        self._loops: dict[AbstractEventLoop, Lock] = {}

    def sdk(self) -> Any:
        """Import the official package.

        Raises:
            MissingExtraError: The package is not installed.
        """
        return import_extra(*self.package)

    def client(self, loop: AbstractEventLoop | None = None) -> Any:
        """Return the official client for threads, or that of an event loop."""
        if (client := self._clients.get(loop)) is not None:
            return client
        with SETUP:
            # Drop the clients of closed loops; they can't be closed any more.
            for each in [each for each in (*self._loops,) if each.is_closed()]:
                self._loops.pop(each, None)
                self._clients.pop(each, None)
            if (client := self._clients.get(loop)) is None:
                codecs.lookup("idna")  # otherwise the first connection imports it, possibly during a fork
                self._clients[loop] = client = self._make(in_loop=loop is not None)
            return client

    async def aclient(self) -> Any:
        """Return the official client of the running event loop."""
        loop = get_running_loop()
        if (client := self._clients.get(loop)) is not None:
            return client
        async with self._loops.setdefault(loop, Lock()):
            # Imports and certificates take up to a second and must not block the loop.
            return self._clients.get(loop) or await to_thread(self.client, loop)

    @abstractmethod
    def _make(self, *, in_loop: bool) -> Any:
        """Create the official client, for threads or for an event loop."""

    @abstractmethod
    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        """Call the official client, with ``stream=True`` for events; in an event loop, the result is awaited."""

    def _check(self, answer: Any) -> object:
        """Return an answer, unless it is text: clients return a body without JSON's content type as text."""
        if isinstance(answer, str):
            raise MalformedError(f"the server's answer is not JSON, so it may not be an API: {answer[:200]}")
        return answer

    def _event(self, event: Any) -> object:
        """Return an event; subclasses raise the errors that events report."""
        return event

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters in the client's own names.

        Args:
            common: ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a list) and ``seed``, and parameters in the
                client's own names.

        Raises:
            ModuleError: The client has no such parameter.
            MissingExtraError: The client is not installed.
        """
        if further := sorted(common.keys() - COMMON):
            self.sdk()
            check_parameters(further, resolve_name(self.method), self.called, self.advice)
        return {self.names.get(name, name): value for name, value in common.items()}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters that request a JSON schema; None if not every model of the API supports one."""
        return None

    def send(self, request: Request) -> object:
        """Return the official client's answer."""
        with mask_in_errors(self._key):
            return self._check(self._ask(self.client(), request))

    async def asend(self, request: Request) -> object:
        """Async version of :meth:`send`; cancelling it closes the connection."""
        with mask_in_errors(self._key):
            return self._check(await self._ask(await self.aclient(), request))

    def stream(self, request: Request) -> Generator[object]:
        """Yield the events of a streamed answer; closing the generator closes the connection."""
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
        """Return the fault of a client's error; None for any other error."""
        oversize = next((each for each in with_origins(error) if isinstance(each, OversizeError)), None)
        if oversize is not None:
            return Fault("too large", str(oversize))
        kind = kind_of_class(error, self.kinds, self.stumbles)
        return None if kind is None else fault_of(kind, error, self._refusal(error), self.words, self._key)

    def _refusal(self, error: Any) -> ErrorResponse:
        """Return the server's response in an error; its fields are None without one."""
        headers = getattr(getattr(error, "response", None), "headers", None)
        return ErrorResponse(getattr(error, "status_code", None), getattr(error, "body", None), headers)

    def close(self) -> None:
        """Close the connections of threads; those of event loops close with :meth:`aclose`."""
        if (client := self._clients.pop(None, None)) is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if (client := self._clients.pop(get_running_loop(), None)) is not None:
            await client.close()


def _check_begun(*, begun: bool) -> None:
    """Raise an error for a stream without events, such as that of a web page."""
    if not begun:
        raise MalformedError("the server's stream has no events, so it may not be an API")


class OwnHttpClient(OfficialClient):
    """An official client like OpenAI's and Anthropic's, with its own subclass of httpx's client.

    Attributes:
        classes: The official classes for threads and for event loops.
    """

    retries_itself = True
    classes: ClassVar[tuple[str, str]]

    def _make(self, *, in_loop: bool) -> Any:
        """Create the official client.

        Its HTTP client follows no redirects, which would send the body and all headers but ``Authorization`` to another
        address. It limits answers. The client retries after any error except its own classes, so the error for a too
        large answer is one of them.
        """
        base_url, _, timeout, retries, options, _ = self._settings
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
