"""Models at providers and at servers with a provider's API, called through official clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret, address_of
from lazyprompt.errors import ModuleError
from lazyprompt.formatters.formatter import ChatFormatter, countable
from lazyprompt.modules._reading import Exchange, Reader
from lazyprompt.modules._sending import Sender
from lazyprompt.modules.chat import Call, ChatModule, Connection, check_params, check_settings
from lazyprompt.modules.clients._base import MAX_ANSWER_BYTES, Request, Settings
from lazyprompt.modules.sources import Source, source_named
from lazyprompt.prompters.target_choice import ModelServer
from lazyprompt.safety.restoring import Restorer
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lazyprompt.budget.budget import BudgetLike
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.formatters.report import Payload
    from lazyprompt.modules.clients._faults import Fault
    from lazyprompt.modules.telemetry import CallHook
    from lazyprompt.tokens.counter import CountsMessages

TIMEOUT = 60.0
RETRIES = 2


class OnlineChatModule(ChatModule):
    """A model at a provider, asked through the provider's official client.

    Nothing is connected before the first call; connections are kept and used again, by all threads and by each event
    loop.

    Args:
        source: The provider: a name, as ``openai`` (see ``SOURCES``), or a Source of your own.
        model: The model; None takes the source's.
        base_url: Another address of the source, or of a server with the same API. LiteLLM's proxy has no default. A
            server that is not a provider's own tokenizes texts with the model's chat template, so control sequences in
            untrusted text are neutralised for it; the prompter's ``with_safety`` says otherwise.
        api_key: The key; None takes that of the environment. It shows nowhere.
        stream: True if calls get their answers in pieces, so that a long one does not run into the time-out.
        timeout: Seconds to wait for a connection, for an answer as a whole, and for each event of a stream; a whole
            stream may take 60 times as long.
        max_answer_bytes: The decompressed size limit of an answer, and of each event of a stream (16 MB); a whole
            stream may have four times as many bytes.
        retries: The number of further attempts after 408, 409, 429, 5xx or a lost connection, with longer and longer
            pauses, or as long as the server asks for.
        concurrency: How many calls are under way at once, in threads and in each event loop; None for any number.
        budget: The budget that makes each prompt fit.
        context: The tokens of the model's context window, where they are not known of its name.
        counter: The counter of a prompt's tokens: one that does not fit the window is not sent.
        hooks: Functions that are given the record of each call when it is over; an error in one is only logged
            (``lazyprompt``).
        options: Further arguments of the client's constructor.
        params: Parameters of every call: ``temperature``, ``top_p``, ``max_tokens``, ``stop``, ``seed``, or the
            client's own.

    Raises:
        ModuleError: There is no such source, no model is named, or a setting is wrong. A missing key is an error of the
            first call: :meth:`payload` needs none.
    """

    def __init__(  # noqa: PLR0913 - all but one are given by name
        self,
        source: str | Source = "openai",
        *,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | Secret | None = None,
        stream: bool = False,
        timeout: float = TIMEOUT,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        retries: int = RETRIES,
        concurrency: int | None = None,
        budget: BudgetLike | None = None,
        context: int | None = None,
        counter: CountsMessages | None = None,
        hooks: Iterable[CallHook] = (),
        options: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> None:
        # No variable holds the key: whatever shows the locals of a traceback would show it.
        api_key = api_key if api_key is None or isinstance(api_key, Secret) else Secret(api_key)
        super().__init__(params, budget, stream=stream)
        self.source = source_named(source)
        self.model = model or self.source.model
        if not self.model:
            raise ModuleError(f"{self.source.name} has no default model: give model=")
        if self.source.base_url == "" and not base_url:
            raise ModuleError(f"{self.source.name} has no address of its own: give base_url=")
        self._window = context or context_of(self.model)
        self._counter = counter
        self._concurrency, self._hooks = concurrency, tuple(hooks)
        self._formatter = ChatFormatter(self.source.provider, model=self.model)
        self._key = api_key
        address = address_of(base_url) if base_url else self.source.base_url
        settings = Settings(address, None, timeout, retries, dict(options or {}), max_answer_bytes)
        self._settings = check_settings(settings, concurrency, ModuleError)
        self._open()

    def _open(self) -> None:
        # It has no key: it is only asked for the names of parameters.
        self._client = self.source.client(self._settings)
        self._connection = Connection()
        address = self._settings.options.get("base_url") or self._settings.base_url
        self._server = ModelServer(self.model, tokenizes=not self.source.is_hosted(address))

    def _sender(self) -> Sender:
        with self._connection.lock:
            if self._connection.sender is None:
                settings = self._settings._replace(key=self.source.key(self._key))
                client = self.source.client(settings)
                sender = Sender(client, self.source.name, settings, self._concurrency, self._hooks, _failed)
                self._connection.sender = sender
            return self._connection.sender

    def _exchange(self, call: Call) -> Exchange:
        prompter, structure, asked = self._asked(call)
        prompt = self._filled(prompter, call)
        # In OpenAI's own form, a model is a family that has a system text.
        model = None if self.source.provider == "openai" else self.model
        target = prompter.target(self.source.provider, model, server=self._server)
        fitted, trim = prompter.fitted(prompt, target)
        payload = cast("Payload", target.render(fitted))
        payload.trim = trim
        self._check_length(payload)
        params = check_params(self._client.params(self._common(call.params)), payload, ModuleError)
        request = Request(self.model, payload, _joined(params, asked), prompter.origin, prompter.secrets)
        reader = Reader(self._formatter.parse, self._client.collector, restorer=Restorer(payload.neutralised))
        return Exchange(request, reader, structure, prompt.said, trim, payload.report)

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


def _joined(params: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with those that ask for a form; dicts that both have are joined."""
    both: dict[str, dict[str, Any]] = {
        name: {**params[name], **value}
        for name, value in asked.items()
        if isinstance(value, dict) and isinstance(params.get(name), dict)
    }
    return {**params, **asked, **both}


def _failed(message: str, fault: Fault, partial: Reply | None) -> ModuleError:
    return ModuleError(message, kind=fault.kind, status=fault.status, partial=partial)
