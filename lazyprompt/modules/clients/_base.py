"""The parts that all clients share: official clients opened when needed, calls, streams, parameters and faults."""

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
    Fault,
    MalformedError,
    Refusal,
    fault_of,
    hiding,
    kind_of_class,
    with_origins,
)
from lazyprompt.modules.clients._limits import Limits, OversizeError, limiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt._base.secret import SecretText
    from lazyprompt.answers.parser import Delta
    from lazyprompt.modules.clients._faults import FaultKind
    from lazyprompt.prompters.definition import PromptOrigin

# The parameters that modules know by themselves: every client takes them, or says why it does not.
COMMON = frozenset(("temperature", "top_p", "max_tokens", "stop", "seed"))
# Advice for clients that pass fields of the server's own on.
EXTRA_BODY = ", or give what only the server knows in extra_body={{{name!r}: ...}}"
# Similarity from which a name counts as a misspelling where any other name is allowed ("top_k" and "top_p" have 0.8).
_MISSPELT, _LIKELY = 0.85, 0.6
# How many connections a client for threads opens, and keeps. httpcore closes idle connections as soon as there are more
# than it keeps, one that it has just given to another thread too: that thread's call fails with a bad file descriptor.
CONNECTIONS = 1_000
# What stands in the place of a key where the server asks for none: without one, clients would look for one themselves,
# and send to this server what they find in the environment.
NO_KEY = "none"
# The longest texts of models have about 1 MB. As JSON that is made to fill the memory, this much takes 700 MB.
MAX_ANSWER_BYTES = 16_777_216
_CARRIED = re.compile("[ -~]*")


class Settings(NamedTuple):
    """The settings of a client.

    Attributes:
        base_url: The server's address; None leaves it to the official client.
        key: The key; None where the server asks for none.
        timeout: Seconds to wait for a connection, for an answer as a whole, and for each event of a stream.
        retries: How often the client may try again by itself where it can do so (408, 409, 429, 5xx, connection lost),
            with back-off and ``Retry-After``.
        options: Further arguments of the client's constructor, as they are.
        max_answer_bytes: The decompressed size limit of an answer, and of each event of a stream.
    """

    base_url: str | None
    key: Secret | None
    timeout: float
    retries: int
    options: Mapping[str, Any]
    max_answer_bytes: int = MAX_ANSWER_BYTES

    @property
    def limits(self) -> Limits:
        """The limits of an answer."""
        return Limits(self.timeout, self.max_answer_bytes)


class Request(NamedTuple):
    """A request.

    Attributes:
        model: The model's name at the source.
        payload: A formatter's payload (``messages`` and ``tools``, ``contents`` and so on), or ``{"prompt": ...}`` for
            engines: flat text or token ids.
        params: Further arguments of the call in the client's own names, as :meth:`OfficialClient.params` gives them.
        origin: The name and version of the prompt, if it came from a file or library.
        secrets: The texts of the prompt that are from the environment.
    """

    model: str
    payload: Mapping[str, Any]
    params: Mapping[str, Any]
    origin: PromptOrigin | None = None
    secrets: tuple[SecretText, ...] = ()


class Collector(Protocol):
    """Puts the events of one stream together."""

    def feed(self, event: object) -> list[Delta]:
        """Return what is new in an event of the client's stream; unknown events and fields add nothing.

        The pieces of a call carry its index within the message; its id and name as soon as they are known.
        """
        ...

    @property
    def complete(self) -> bool:
        """True if the stream named its end; one that stops before was cut."""
        ...

    def answer(self) -> dict[str, Any]:
        """Return the answer so far, as the provider gives it without streaming; ``ChatFormatter.parse`` reads it."""
        ...


def key_of(secret: Secret | None) -> str:
    """Return a key as a header can carry it, without the white space that stands around it in many files.

    Raises:
        ModuleError: It holds what no header can carry. HTTP clients quote such a header in their errors.
    """
    if secret is None:
        return NO_KEY
    # No variable holds the key: whatever shows the locals of a traceback would show it.
    if not _CARRIED.fullmatch(secret.reveal().strip()):
        raise ModuleError("the key holds characters that no header can carry; keys are of letters, digits and signs")
    return secret.reveal().strip()


# Held while an official package is imported or one of its clients is made, never during a request: some packages look
# into ``sys.modules``, where they would find half of what another thread imports. The same thread may come here again,
# from code that runs as a package is imported. A fork waits, for its child would wait forever.
SETUP = RLock()
if sys.platform != "win32":  # which has no fork
    os.register_at_fork(before=SETUP.acquire, after_in_parent=SETUP.release, after_in_child=SETUP.release)


def import_extra(module: str, package: str, *beside: str) -> Any:
    """Import a module of an optional package, which is slow.

    Args:
        module: The module.
        package: The package to install, named in the error; the extra has the same name.
        beside: Modules that the package looks for in ``sys.modules`` during requests, to be imported as a whole first.

    Raises:
        MissingExtraError: It is not installed.
    """
    with nullcontext() if module in sys.modules else SETUP:
        for each in filter(find_spec, beside):
            errors.import_extra(each, package)
        return errors.import_extra(module, package)


def check_parameters(names: list[str], method: Callable[..., object], called: str, advice: str = "") -> None:
    """Refuse a parameter that a method of a client does not take.

    The official clients answer one with a ``TypeError``, or pass it on to a server that ignores it. A method that takes
    any keyword refuses only what looks like a misspelling of one of its own.

    Raises:
        ModuleError: The method takes no such parameter.
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
    """A client of a provider, for threads and for event loops, on the official one. A subclass has its differences.

    The official client is made when it is first used. Its connections belong to the event loop they were made in, so
    each loop has one of its own.

    Args:
        settings: The settings.

    Attributes:
        retries_itself: True if the official client tries again by itself (``Settings.retries``); else the module does.
        package: The official package, as :func:`import_extra` takes it. The extra has the same name.
        method: The method that takes the parameters, as ``package:Class.method``.
        called: The name of that method in errors.
        advice: The way to send what only the server knows, in errors; ``{name}`` is the parameter.
        names: The client's names of common parameters, where they are others.
        kinds: The meaning of its errors, as ``package.Name``, special ones first.
        words: The words of the server that tell more than its status.
        stumbles: The package whose own ``TypeError`` and the like mean an answer that is none.
        collector: The class that puts the events of a stream together.
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

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        # The clients, that for threads under None; and the lock of each loop, whose tasks wait for one client.
        self._clients: dict[AbstractEventLoop | None, Any] = {}
        self._loops: dict[AbstractEventLoop, Lock] = {}

    def sdk(self) -> Any:
        """Import the official package.

        Raises:
            MissingExtraError: It is not installed.
        """
        return import_extra(*self.package)

    def client(self, loop: AbstractEventLoop | None = None) -> Any:
        """Return the official client for threads, or that of an event loop."""
        if (client := self._clients.get(loop)) is not None:
            return client
        with SETUP:
            # The client of a loop that is closed can only be dropped.
            for each in [each for each in (*self._loops,) if each.is_closed()]:
                self._loops.pop(each, None)
                self._clients.pop(each, None)
            if (client := self._clients.get(loop)) is None:
                codecs.lookup("idna")  # a socket's first address imports it: a fork could copy half of it
                self._clients[loop] = client = self._make(in_loop=loop is not None)
            return client

    async def aclient(self) -> Any:
        """Return the official client of the running event loop."""
        loop = get_running_loop()
        if (client := self._clients.get(loop)) is not None:
            return client
        async with self._loops.setdefault(loop, Lock()):
            # Imports and certificates take up to a second, for which the loop is not to stand still.
            return self._clients.get(loop) or await to_thread(self.client, loop)

    @abstractmethod
    def _make(self, *, in_loop: bool) -> Any:
        """Make the official client, for threads or for an event loop."""

    @abstractmethod
    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        """Call the official client, with ``stream=True`` for events; in an event loop, the result is awaited."""

    def _check(self, answer: Any) -> object:
        """Refuse an answer that is none: clients give back as text what has not the content type of JSON."""
        if isinstance(answer, str):
            raise MalformedError(f"the server answered with no JSON, as if it were no API: {answer[:200]}")
        return answer

    def _event(self, event: Any) -> object:
        """Return an event, if it tells of no error."""
        return event

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters in the client's own names.

        Args:
            common: ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a list), ``seed`` under these names; all
                others are the client's own already and stay.

        Raises:
            ModuleError: The client takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        if further := sorted(common.keys() - COMMON):
            self.sdk()
            check_parameters(further, resolve_name(self.method), self.called, self.advice)
        return {self.names.get(name, name): value for name, value in common.items()}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return None: the API takes no schema, or not every model of it does."""
        return None

    def send(self, request: Request) -> object:
        """Return the answer, as the official client gives it; ``ChatFormatter.parse`` reads it."""
        with hiding(self._key):
            return self._check(self._ask(self.client(), request))

    async def asend(self, request: Request) -> object:
        """Async version of :meth:`send`; cancelling it closes the connection."""
        with hiding(self._key):
            return self._check(await self._ask(await self.aclient(), request))

    def stream(self, request: Request) -> Iterator[object]:
        """Yield the events of a streamed answer; closing the generator closes the connection."""
        begun = False
        with hiding(self._key):
            answer = self._ask(self.client(), request, stream=True)
            with answer if hasattr(answer, "__exit__") else closing(answer) as events:
                for event in events:
                    yield self._event(event)
                    begun = True
            _check_begun(begun=begun)

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """Async version of :meth:`stream`."""
        begun = False
        with hiding(self._key):
            answer = await self._ask(await self.aclient(), request, stream=True)
            async with answer if hasattr(answer, "__aexit__") else aclosing(answer) as events:
                async for event in events:
                    yield self._event(event)
                    begun = True
            _check_begun(begun=begun)

    def fault(self, error: Exception) -> Fault | None:
        """Return the meaning of an error, or None if it is none of the client's."""
        oversize = next((each for each in with_origins(error) if isinstance(each, OversizeError)), None)
        if oversize is not None:
            return Fault("too large", str(oversize))
        kind = kind_of_class(error, self.kinds, self.stumbles)
        return None if kind is None else fault_of(kind, error, self._refusal(error), self.words, self._key)

    def _refusal(self, error: Any) -> Refusal:
        """Return the server's answer in an error, as far as there is one."""
        headers = getattr(getattr(error, "response", None), "headers", None)
        return Refusal(getattr(error, "status_code", None), getattr(error, "body", None), headers)

    def close(self) -> None:
        """Close the connections of threads; those of event loops close with :meth:`aclose`."""
        if (client := self._clients.pop(None, None)) is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if (client := self._clients.pop(get_running_loop(), None)) is not None:
            await client.close()


def _check_begun(*, begun: bool) -> None:
    """Refuse a stream without events, as official clients make of a web page."""
    if not begun:
        raise MalformedError("the server answered with no event of a stream, as if it were no API")


class OwnHttpClient(OfficialClient):
    """An official client of OpenAI's make, as Anthropic's is, which takes an HTTP client of its own kind.

    Attributes:
        classes: Its classes, for threads and for event loops.
    """

    retries_itself = True
    classes: ClassVar[tuple[str, str]]

    def _make(self, *, in_loop: bool) -> Any:
        """Make the official client.

        Its HTTP client follows no redirect: they take the body of a request to whatever address a server names, and all
        headers but ``Authorization``. And it limits answers; the client asks again after any error but one of its own
        classes, so that for too long an answer is one.
        """
        base_url, _, timeout, retries, options, _ = self._settings
        sdk, kind = self.sdk(), "Async" if in_loop else ""
        made: dict[str, Any] = {"base_url": base_url, "timeout": timeout, "max_retries": retries, **options}
        if "http_client" not in options:
            http = getattr(sdk, f"Default{kind}HttpxClient")
            library = sys.modules[http.__mro__[1].__module__.partition(".")[0]]
            oversize = type("Oversize", (OversizeError, getattr(sdk, f"{self.classes[0]}Error")), {})
            hooks = limiting(library, self._settings.limits, {}, in_loop=in_loop, oversize=oversize)
            made["http_client"] = http(follow_redirects=False, event_hooks=hooks)
        return getattr(sdk, self.classes[in_loop])(**{**self._credential(), **made})

    def _credential(self) -> dict[str, str]:
        return {"api_key": key_of(self._key)}
