"""Models at providers, and at whoever speaks like one, each through its official client."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError
from lazyprompt.formatters.formatter import ChatFormatter, countable
from lazyprompt.formatters.report import Payload
from lazyprompt.modules._reading import Exchange, ProviderReader
from lazyprompt.modules._sending import Limits, Sender
from lazyprompt.modules.chat import ChatModule
from lazyprompt.modules.client import Request, Settings
from lazyprompt.modules.sources import source_named
from lazyprompt.prompters.fitting import read_budget
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules._base import Call
    from lazyprompt.modules.client import Fault
    from lazyprompt.modules.structured import ResponseFormat
    from lazyprompt.modules.telemetry import CallHook
    from lazyprompt.prompters.fitting import BudgetLike
    from lazyprompt.tokens.counter import CountsMessages

TIMEOUT = 60.0
RETRIES = 2


class _Connection:
    """The connection to a provider, made by the first call and shared by modules.

    Args:
        connect: Makes it.
    """

    __slots__ = ("_connect", "_lock", "sender")

    def __init__(self, connect: Callable[[], Sender]) -> None:
        self._connect = connect
        self._lock = Lock()
        self.sender: Sender | None = None

    def open(self) -> Sender:
        """Return what sends requests, connecting at the first call."""
        with self._lock:
            self.sender = self.sender or self._connect()
            return self.sender


class OnlineChatModule(ChatModule):
    """A model at a provider, asked through the provider's official client.

    Nothing is connected before the first call; connections are kept and used again, by all threads and by each event
    loop.

    Args:
        source: The provider, as ``openai`` (see ``SOURCES``).
        model: The model; None takes the source's.
        base_url: Another address of the source, or of a server that speaks like it.
        api_key: The key; None takes that of the environment. It shows nowhere.
        stream: Whether calls get their answers in pieces, so that a long one does not run into the time-out.
        timeout: Seconds to wait for a connection, and for each piece of an answer.
        retries: How often a call is tried again after 408, 409, 429, 5xx or a lost connection, with longer and longer
            pauses, or as long as the server asks for.
        concurrency: How many calls are under way at once, in threads and in each event loop; None for any number.
        budget: What makes each prompt fit.
        context: The tokens of the model's context window, where they are not known of its name.
        counter: What counts the tokens of a prompt: one that does not fit the window is not sent.
        hooks: What is told of each call when it is over; an error in one is logged (``lazyprompt``), and no more.
        options: Further arguments of the client's constructor.
        params: Parameters of every call: ``temperature``, ``top_p``, ``max_tokens``, ``stop``, ``seed``, or the
            client's own.

    Raises:
        ModuleError: There is no such source, no model is named, or a setting is wrong. A missing key is an error of the
            first call: :meth:`payload` needs none.
    """

    def __init__(  # noqa: PLR0913 - all but one are given by name
        self,
        source: str = "openai",
        *,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        stream: bool = False,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        concurrency: int | None = None,
        budget: BudgetLike | None = None,
        context: int | None = None,
        counter: CountsMessages | None = None,
        hooks: Iterable[CallHook] = (),
        options: Mapping[str, Any] | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> None:
        # No variable holds the key: whatever shows the locals of a traceback would show it.
        api_key = api_key if api_key is None or isinstance(api_key, Secret) else Secret(api_key)
        super().__init__(params)
        self.source = source_named(source)
        self.model = model or self.source.model
        if not self.model:
            raise ModuleError(f"{self.source.name} has no model that goes without saying: give model=")
        self._streams = stream
        self._budget = None if budget is None else read_budget(budget)
        self._window = context or context_of(self.model)
        self._counter = counter
        self._limits, self._hooks = Limits(retries, concurrency), tuple(hooks)
        self._formatter = ChatFormatter(self.source.provider, model=self.model)
        self._key = api_key
        self._settings = Settings(
            base_url or self.source.base_url, None, _seconds(timeout), retries, _checked(options or {})
        )
        self._open()

    def _open(self) -> None:
        """Prepare the connection, which a copy does not share."""
        # It has no key: it is only asked for the names of parameters.
        self._client = self.source.client(self._settings)
        self._connection = _Connection(self._connect)

    def _connect(self) -> Sender:
        """Return what sends requests.

        Raises:
            ModuleError: There is no key, and the source needs one.
        """
        settings = self._settings._replace(key=self.source.key(self._key))
        client = self.source.client(settings)
        return Sender(client, self.source.name, self._limits, self._hooks, _failed, settings.key)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: it has a connection of its own, and a pickle holds no key."""
        return {name: value for name, value in vars(self).items() if name not in ("_client", "_connection")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __call__(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> Reply:
        """Ask the model; see :meth:`ChatModule.__call__`."""
        if not self._streams:
            return super().__call__(input, history, tools, response_format=response_format, **params)
        stream = self.stream(input, history, tools, response_format=response_format, **params)
        for _ in stream.deltas():
            pass
        return stream.reply

    async def acall(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> Reply:
        """The same as a call, in an event loop; cancelling it closes the connection."""
        if not self._streams:
            return await super().acall(input, history, tools, response_format=response_format, **params)
        async with self.astream(input, history, tools, response_format=response_format, **params) as stream:
            async for _ in stream.deltas():
                pass
        return stream.reply

    def close(self) -> None:
        """Close the connections of threads; the module can be used again.

        Calls that are under way may run into their time-out.
        """
        if self._connection.sender is not None:
            self._connection.sender.client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if self._connection.sender is not None:
            await self._connection.sender.client.aclose()

    def _sender(self) -> Sender:
        return self._connection.open()

    def _exchange(self, call: Call) -> Exchange:
        client = self._client
        structure = self._structure(call.response_format)
        asked = None if structure is None else client.structured(structure.schema, structure.name)
        prompter = self._prompter
        if structure is not None and asked is None:
            prompter = prompter.with_added_system(structure.instruction)
        if self._budget is not None:
            prompter = prompter.with_budget(self._budget)
        prompt = self._filled(prompter, call)
        target = prompter.target(self.source.provider, self._model_asked())
        fitted, trim = prompter.fitted(prompt, target)
        made = cast("dict[str, Any]", target.render(fitted))
        payload = self._with_fitting_names(made if isinstance(made, Payload) else Payload(made))
        payload.trim = trim
        self._check_length(payload)
        given = client.params(self._common(call.params))
        _no_other(given, payload)
        request = Request(self.model, payload, _joined(given, asked or {}))
        reader = ProviderReader(self._formatter, client.collector)
        return Exchange(request, reader, structure, prompt.said, trim, payload.report)

    def _with_fitting_names(self, payload: Payload) -> Payload:
        """The payload with speakers' names as OpenAI takes them: its own form has them as they were given."""
        if self.source.provider != "openai" or not any("name" in message for message in payload["messages"]):
            return payload
        made = self._formatter.format(payload["messages"])
        return Payload({**payload, **made}, (*payload.report, *made.report))

    def _model_asked(self) -> str | None:
        """The model whose rules the prompt keeps; OpenAI's own form has no such rules."""
        return None if self.source.provider == "openai" else self.model

    def _check_length(self, payload: Payload) -> None:
        """Refuse a prompt that is longer than the model takes, where that is known."""
        if self._counter is None or self._window is None:
            return
        count = self._counter.count(*countable(payload, self._formatter.profile))
        if count > self._window:
            raise ModuleError(
                f"the prompt has {count} tokens, and {self.model} takes {self._window}: shorten it, or give a budget: "
                f"budget=Budget({self._window}, counter)",
                kind="overflow",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source.name!r}, model={self.model!r})"


def _seconds(timeout: float) -> float:
    given = cast("object", timeout)
    if not isinstance(given, int | float) or not given > 0:
        raise ModuleError(f"timeout is in seconds, and more than 0, not {given!r}")
    return given


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the client's constructor; a key among them would show in errors."""
    if "api_key" in options:
        raise ModuleError("a key is given as api_key=, not among the options")
    return dict(options)


def _no_other(params: Mapping[str, Any], payload: Payload) -> None:
    """Refuse parameters that would put something else in the place of what the prompter made, or of the model."""
    for name in params:
        if name in ("model", "stream") or name in payload:
            raise ModuleError(
                f"{name!r} is no parameter of a call: messages and tools are what the prompter makes of it, the model "
                "is the module's, and module.stream(...) streams"
            )


def _joined(params: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with those that ask for a form; what both have is joined where it is a dict."""
    both = {name: {**params[name], **value} for name, value in asked.items() if _is_dict(params.get(name), value)}
    return {**params, **asked, **both}


def _is_dict(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)


def _failed(message: str, fault: Fault, partial: Reply | None) -> ModuleError:
    return ModuleError(message, kind=fault.kind, status=fault.status, partial=partial)
