"""Models from hosted providers and from servers that implement a provider's API, called through official clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret, address_of
from lazyprompt.errors import ModuleError
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.formatter import ChatFormatter, countable
from lazyprompt.modules._checks import check_params, check_settings, check_values
from lazyprompt.modules._reading import Exchange, ReplyReader
from lazyprompt.modules._sending import Sender
from lazyprompt.modules.chat import CallOptions, ChatModule, Connection
from lazyprompt.modules.clients._base import MAX_ANSWER_BYTES, ClientSettings, Request
from lazyprompt.modules.sources import OPENAI_CLIENT, Source, source_named
from lazyprompt.prompters.target_choice import ModelServer
from lazyprompt.safety.restoring import Restorer
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lazyprompt.budget.budget import BudgetLike
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.formatters.report import Payload
    from lazyprompt.modules.clients._faults import Fault
    from lazyprompt.modules.telemetry import CallHook
    from lazyprompt.tokens.counter import CountsMessages

TIMEOUT = 60.0
RETRIES = 2


class OnlineChatModule(ChatModule):
    """A provider's model, called through the provider's official client.

    The first call opens the connection. Threads share connections, and each event loop has its own connections.

    Args:
        source: The provider, as a name such as ``openai`` (see ``SOURCES``) or as a custom ``Source``.
        model: The model's name; None for the provider's default model.
        base_url: The URL of another server that implements the provider's API; required for a LiteLLM proxy. A
            self-hosted server tokenizes each message as part of the chat template, so control sequences in the message
            could take effect. For self-hosted servers, control sequences in untrusted text are neutralised, unless the
            prompter's ``with_safety`` sets another policy.
        api_key: The API key; None to read it from the environment. The key never appears in reprs, errors or logs.
        stream: True to stream responses internally, so that long responses don't time out.
        timeout: The timeout in seconds for a connection, for a response, and for each event in a stream. The timeout
            for a whole stream is 60 times ``timeout``.
        max_answer_bytes: The maximum decompressed size of a response or stream event, in bytes (default 16 MB). The
            limit for a whole stream is four times ``max_answer_bytes``.
        retries: The number of retries after status 408, 409, 429, 5xx or a lost connection. The delay is the server's
            ``Retry-After`` or an exponential back-off.
        concurrency: The maximum number of concurrent calls; None for no limit. Synchronous calls in all threads share
            one limit. The asynchronous calls in each event loop have a separate limit.
        budget: The token budget for each prompt.
        context: The size of the model's context window in tokens. By default, the size of the context window is looked
            up by the model's name.
        counter: The token counter for prompts. If a counter is set, a prompt that exceeds the context window raises an
            error and is not sent.
        strict: True to raise an error instead of sending a request if the provider's format loses content.
        hooks: Functions called with the record of each finished call. If a hook fails, its error is logged to the
            ``lazyprompt`` logger.
        options: Additional arguments for the client's constructor.
        params: Default parameters for every call: ``temperature``, ``top_p``, ``max_tokens``, ``stop``, ``seed``, or
            parameters of the client, whose values are JSON or the client's own objects.

    Raises:
        ModuleError: The provider is unknown, no model is set, or a setting is invalid. A missing API key raises an
            error only in the first call, because :meth:`payload` needs no key.
    """

    def __init__(  # noqa: PLR0913 - all arguments but one are keyword-only
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
        strict: bool = False,
        hooks: Iterable[CallHook] = (),
        options: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> None:
        # Wrap the API key in a ``Secret`` before any other statement, because a traceback may show local variables.
        api_key = api_key if api_key is None or isinstance(api_key, Secret) else Secret(api_key)
        super().__init__(params, budget, stream=stream)
        self.source = source_named(source)
        if not isinstance(cast("object", model), str | None):
            raise ModuleError(f"model must be the provider's name for the model, not {type(model).__name__}")
        self.model = model or self.source.model
        if not self.model:
            raise ModuleError(f"{self.source.name} has no default model; pass model=")
        if self.source.base_url == "" and not base_url:
            raise ModuleError(f"{self.source.name} has no default URL; pass base_url=")
        self._window = context or context_of(self.model)
        self._counter, self._strict = counter, strict
        self._concurrency, self._hooks = concurrency, tuple(hooks)
        self._formatter = ChatFormatter(self.source.provider, model=self.model)
        _check_client(self.source, self._formatter.profile)
        self._key = api_key
        address = address_of(base_url) if base_url else self.source.base_url
        # A custom profile defines what the server supports, even if the client doesn't know the server.
        schemas = None if isinstance(self.source.provider, str) else self.source.provider.output_schemas
        settings = ClientSettings(address, None, timeout, retries, dict(options or {}), max_answer_bytes, schemas)
        self._settings = check_settings(settings, concurrency, ModuleError)
        self._open()
        check_values(self._params, self._client.package[0])

    def _open(self) -> None:
        # This client needs no API key, because it only lists the names of call parameters.
        self._client = self.source.client(self._settings)
        self._connection = Connection()
        address = self._settings.options.get("base_url") or self._settings.base_url
        self._server = ModelServer(self.model, tokenizes=not self.source.is_hosted(address))

    def _sender(self) -> Sender:
        with self._connection.lock:
            if self._connection.sender is None:
                settings = self._settings._replace(key=self.source.key(self._key))
                client = self.source.client(settings)
                sender = Sender(client, self.source.name, settings, self._concurrency, self._hooks, _module_error)
                self._connection.sender = sender
            return self._connection.sender

    def _exchange(self, call: CallOptions) -> Exchange:
        prompter, structure, asked = self._asked(call)
        prompt = self._fill(prompter, call)
        # Don't pass an OpenAI model name to the prompter, because this name would select a model family with a default
        # system text.
        model = None if self.source.provider == "openai" else self.model
        target = prompter.target(self.source.provider, model, server=self._server)
        fitted, trim = prompter.fitted(prompt, target)
        payload = cast("Payload", target.render(fitted))
        payload.trim = trim
        if self._strict:
            payload.report.raise_for_losses()
        self._check_length(payload)
        params = check_params(self._client.params(self._common(call.params)), payload, ModuleError)
        request = Request(self.model, payload, _merge_params(params, asked), prompter.origin, prompter.secrets)
        reader = ReplyReader(self._formatter.parse, self._client.collector, restorer=Restorer(payload.neutralised))
        return Exchange(request, reader, structure, prompt.said, trim, payload.report)

    def _check_length(self, payload: Payload) -> None:
        """Raise an error if the prompt exceeds the model's context window."""
        if self._counter is None or self._window is None:
            return
        count = self._counter.count(*countable(payload, self._formatter.profile))
        if count > self._window:
            raise ModuleError(
                f"the prompt has {count} tokens, but the context window of {self.model} is {self._window}; shorten "
                f"the prompt or set budget=Budget({self._window}, counter)",
                kind="overflow",
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source.name!r}, model={self.model!r})"


def _check_client(source: Source, profile: Profile) -> None:
    """Raise an error if a source uses OpenAI's client for a payload format that this client can't send."""
    if source.connect == OPENAI_CLIENT and not isinstance(profile.form, ChatForm):
        raise ModuleError(
            f"the default client sends only OpenAI's payload format, not the format of the profile {profile.name!r}; "
            "pass Source(..., connect=...), or, for a built-in provider's API, use "
            "OnlineChatModule(NAME, base_url=...)"
        )


def _merge_params(params: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Add the parameters for structured output to a call's other parameters, and merge nested dicts."""
    both: dict[str, dict[str, Any]] = {
        name: {**params[name], **value}
        for name, value in asked.items()
        if isinstance(value, dict) and isinstance(params.get(name), dict)
    }
    return {**params, **asked, **both}


def _module_error(message: str, fault: Fault, partial: Reply | None) -> ModuleError:
    return ModuleError(message, kind=fault.kind, status=fault.status, partial=partial)
