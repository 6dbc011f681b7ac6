"""Runs local models by sending text prompts to an inference engine and parsing the generated text."""

from __future__ import annotations

import logging
import os
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from lazyprompt._base.json import is_list
from lazyprompt._base.secret import Secret, address_of
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.chat_templates.bridge import bridge_refusal
from lazyprompt.chat_templates.token_counter import read_tokenizer
from lazyprompt.errors import EngineError
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.reply import Reply, user_turn, value_at
from lazyprompt.messages.encoding import TokenCache, TokenizerLike, backend_of
from lazyprompt.messages.history import History, HistoryLike
from lazyprompt.modules._checks import check_params, check_settings, check_values
from lazyprompt.modules._layout import (
    LayoutSettings,
    PromptLayout,
    ids_before_text,
    layout_of,
    llama_cpp_ids_before_text,
)
from lazyprompt.modules._reading import Exchange, text_reader
from lazyprompt.modules._sending import Sender
from lazyprompt.modules.chat import CallOptions, ChatModule, Connection
from lazyprompt.modules.clients._base import MAX_ANSWER_BYTES, ClientSettings, Request
from lazyprompt.modules.engines import OTHER, AnswerIds, Engine, engine_for, engine_named
from lazyprompt.modules.process import EngineProcess, Status
from lazyprompt.safety.restoring import Restorer, pairs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.parser import AnswerFormLike
    from lazyprompt.budget.budget import BudgetLike
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Rendered
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules.clients._faults import Fault
    from lazyprompt.modules.telemetry import CallHook
    from lazyprompt.rendering.markers import Markers

_LOG = logging.getLogger("lazyprompt")
# The default timeout in seconds. An engine may process a long prompt for minutes before the first token.
TIMEOUT = 600.0
RETRIES = 2
# The default token limit for a response, because the engines' defaults range from 16 tokens to no limit.
MAX_TOKENS = 1024
# How many seconds to wait for an engine to exit after the connection is lost.
_DYING = 2.0
_NOWHERE = "http://127.0.0.1"


class _Running(Connection):
    """The process and connection of an engine, which modules can share."""

    def __init__(self) -> None:
        super().__init__()
        self.starting = Lock()
        self.process: EngineProcess | None = None
        self.url = ""
        self.added: list[int] | None = None  # token ids that llama.cpp adds before each text, or None if unknown


class TrainableModule(ChatModule):
    """A local model on llama.cpp, vLLM, SGLang, LMDeploy, Ollama, or another server with OpenAI's completions API.

    Prompts are rendered as plain text with the model's chat template, or with the markers of its model family. By
    default, the chat template is read from the GGUF file or the model directory. The :meth:`start` method starts
    llama.cpp or vLLM. For any other engine, pass ``url``.

    Args:
        base_model: A GGUF file, a model directory, ``owner/name`` on a model hub, or Ollama's ``name:tag``.
        engine: The engine's name; None for the model's default engine. If ``url`` is set without ``engine``, requests
            for a directory or hub model contain only fields that all servers accept.
        url: The URL of a running engine, without a path.
        chat_template: The model's chat template, its path, or its text. A template without special tokens uses the
            model's special tokens.
        markers: The markers, or the name of a model family, in place of a chat template.
        answers: The format of the model's responses, as a name or value that :class:`~lazyprompt.ResponseParser`
            accepts. By default, the response format is derived from the chat template or the model's name.
        tokenizer: The model's tokenizer, or a shared :class:`~lazyprompt.TokenCache`. With a tokenizer, conversations
            continue from token ids (see :meth:`continued`). If token ids are sent, the default tokenizer is the
            ``tokenizer.json`` file in the model directory.
        safe_tokens: True to send token ids, so that untrusted text never becomes a control token.
        stream: True to stream responses internally, so that long responses don't time out.
        timeout: The timeout in seconds for a connection, for a response, and for each event in a stream. The timeout
            for a whole stream is 60 times ``timeout``.
        max_answer_bytes: The maximum decompressed size of a response or stream event, in bytes (default 16 MB). The
            limit for a whole stream is four times ``max_answer_bytes``.
        retries: The number of retries if the engine is overloaded or the connection is lost.
        concurrency: The maximum number of concurrent calls; None for no limit.
        budget: The token budget for each prompt.
        hooks: Functions called with the record of each finished call.
        api_key: The API key, if the engine at ``url`` requires one.
        options: Additional arguments for the client's constructor.
        params: Default parameters for every call: ``temperature``, ``top_p``, ``max_tokens`` (default 1024), ``stop``,
            ``seed``, or parameters of the client.

    Raises:
        EngineError: The engine is unknown, the file is missing, or the directory contains no model.
        TemplateError: The model family is unknown, or the template is invalid.
    """

    _unshared = ("_client", "_connection", "_running")

    def __init__(  # noqa: PLR0913 - all arguments but one are keyword-only
        self,
        base_model: str | os.PathLike[str] = "",
        *,
        engine: str | Engine | None = None,
        url: str | None = None,
        chat_template: ChatTemplate | str | Path | None = None,
        markers: Markers | str | None = None,
        answers: AnswerFormLike | None = None,
        tokenizer: TokenizerLike | None = None,
        safe_tokens: bool = False,
        stream: bool = False,
        timeout: float = TIMEOUT,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        retries: int = RETRIES,
        concurrency: int | None = None,
        budget: BudgetLike | None = None,
        hooks: Iterable[CallHook] = (),
        api_key: str | Secret | None = None,
        options: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> None:
        # Wrap the API key in a ``Secret`` before any other statement, because a traceback may show local variables.
        api_key = Secret(api_key) if isinstance(api_key, str) else api_key
        super().__init__({"max_tokens": MAX_TOKENS, **params}, budget, stream=stream)
        if not isinstance(cast("object", base_model), str | os.PathLike):
            raise EngineError(f"base_model must be a model's name or path, not {type(base_model).__name__}")
        self.base_model: str = os.path.expanduser(os.fspath(base_model))  # noqa: PTH111 - a hub's name is not a path
        self.engine = _engine_of(self.base_model, engine, url)
        if url is not None and not url.startswith(("http://", "https://")):
            raise EngineError(f"url must be an http(s) URL such as http://127.0.0.1:8000, not {address_of(url)!r}")
        # Remove /v1, because the client appends /v1 to the URL.
        self._url = None if url is None else address_of(url.rstrip("/").removesuffix("/v1"))
        self._given = LayoutSettings(chat_template, markers, answers)
        self._given.check()
        self._tokenizer, self._safe_tokens = tokenizer, safe_tokens
        settings = ClientSettings(None, api_key, timeout, retries, dict(options or {}), max_answer_bytes)
        self._settings = check_settings(settings, concurrency, EngineError)
        self._concurrency, self._hooks = concurrency, tuple(hooks)
        self._open()
        check_values(self._params, self._client.package[0])
        if safe_tokens and not self.engine.takes_ids:
            raise EngineError(f"{self.engine.name} does not accept token ids; remove safe_tokens=")

    def _open(self) -> None:
        self._connection = self._running = _Running()
        # This client only lists the names of call parameters, so any URL works.
        self._client = self.engine.connect(self._settings._replace(base_url=self._url or _NOWHERE))

    def start(
        self, *, port: int | None = None, timeout: float = 120.0, log: str | Path | None = None, **options: object
    ) -> Self:
        """Start the engine and wait until it is ready.

        A running engine is left unchanged. If ``url`` is set, the method starts no engine and only logs a message to
        the ``lazyprompt`` logger.

        Args:
            port: The port on 127.0.0.1; None for any free port.
            timeout: The maximum time in seconds until the engine is ready.
            log: The log file to which the engine's output is appended; None for a temporary file.
            options: The engine's options, such as ``max_model_len=4096``.

        Returns:
            The module itself.

        Raises:
            EngineError: The engine did not start. The error message includes advice, the command and the last log
                lines.
        """
        if self._url is not None:
            _LOG.info("start() has no effect: the engine at %r is managed elsewhere", self._url)
            return self
        if not self.base_model:
            raise EngineError("starting an engine requires a model; pass base_model")
        if self.engine is OTHER:
            engine_for(self.base_model)  # raises an error that explains why no engine was found
        with self._running.starting:
            if self.status() != "running":
                self._running.process = EngineProcess(
                    self.engine, self.base_model, port=port, options=options, log=log, timeout=timeout
                )
                self._running.process.start()
        return self

    def stop(self) -> None:
        """Terminate the engine if it is running, and wait until its processes have exited.

        Model calls in progress fail when the engine stops.
        """
        if self._running.process is not None:
            self._running.process.stop()
        self.close()

    def status(self) -> Status:
        """Return the engine's state, which is always ``running`` if ``url`` is set."""
        if self._url is not None:
            return "running"
        return "stopped" if self._running.process is None else self._running.process.status()

    @property
    def url(self) -> str:
        """The engine's URL.

        Raises:
            EngineError: The engine was not started.
        """
        if self._url is not None:
            return self._url
        if self._running.process is None or self._running.process.status() == "stopped":
            raise EngineError("the engine was not started; call start() or pass the url= of a running engine")
        return self._running.process.url

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def render(self, input: object = None, history: HistoryLike | None = None, tools: ToolsLike = None) -> Rendered:
        """Return the prompt text for a call, with its segments.

        Args:
            input: The input, as in :meth:`ChatModule.__call__`.
            history: The earlier messages.
            tools: The tools that the model may call.
        """
        prompter = self._with_budget(self._prompter)
        target = self.layout.target(prompter)
        prompt = self._fill(prompter, CallOptions(input, history, tools, None, {}))
        return target.segments(prompter.fitted(prompt, target)[0])

    @cached_property
    def layout(self) -> PromptLayout:
        """The prompt layout of the model.

        Raises:
            TemplateError: The model has no chat template and no known family.
        """
        return layout_of(self.base_model, self._given)

    def continued(self) -> ChatModule:
        """Return a module for one conversation, in which each prompt extends the token ids of the previous prompt.

        The earlier token ids are reused from the engine's cache and not encoded again. Reusing token ids requires
        ``tokenizer=``, an engine that returns token ids, and a chat template that renders each prompt as an extension
        of the previous prompt. If a requirement for reusing token ids is not met, every prompt is encoded completely.
        """
        ids = self.engine.answer_ids
        if self._tokenizer is None or ids is None:
            return self
        template, streams = self.layout.template, self._streams
        return Bridged(self._sender, self._exchange, template, self._tokenizer, ids, stream=streams)

    def _sender(self) -> Sender:
        url, running = self.url, self._running
        with running.lock:
            if running.sender is None or running.url != url:
                self.close()
                client = self.engine.connect(self._settings._replace(base_url=url))
                named, hooks = self.engine.name, self._hooks
                running.sender = Sender(client, named, self._settings, self._concurrency, hooks, self._engine_error)
                running.url, running.added = url, None
            return running.sender

    def _exchange(self, call: CallOptions, *, as_ids: bool = False) -> Exchange:
        """Return the engine request for a call.

        The prompt is sent as text, or as token ids if ``as_ids`` or ``safe_tokens`` is set.
        """
        layout = self.layout
        prompter, structure, asked = self._asked(call)
        prompt = self._fill(prompter, call)
        target = layout.target(prompter)
        fitted, trim = prompter.fitted(prompt, target)
        rendered = target.segments(fitted)
        as_ids = as_ids or self._safe_tokens
        own_bos = layout.opens_with_bos(rendered, as_ids=as_ids)
        payload = {"prompt": (self._ids if as_ids else self._text)(rendered, own_bos=own_bos)}
        common = check_params(self._common(call.params, layout.markers.stop), payload, EngineError)
        params = self.engine.params(self._client.params(common), asked, own_bos=own_bos)
        request = Request(self.base_model or "default", payload, params, prompter.origin, prompter.secrets)
        offered = list(prompt.tools)
        parser = partial(ResponseParser, layout.answers, tools=offered, prompt=rendered.text)
        reader = text_reader(parser, self._client.collector, Restorer(pairs_in(rendered.parts).items()))
        return Exchange(request, reader, structure, prompt.said, trim, tools=offered)

    def _text(self, rendered: Rendered, *, own_bos: bool) -> str:
        """Return a prompt as text, without its BOS token if the engine always adds one."""
        if own_bos and self.engine.no_bos is None and self._ids_before_text() != []:
            return rendered.text.removeprefix(self.layout.bos)
        return rendered.text

    def _ids(self, rendered: Rendered, *, own_bos: bool) -> list[int]:
        """Return a prompt as token ids, including ids such as BOS that the engine would add before the text."""
        ids = rendered.encode(self._token_cache)
        return ids if own_bos else [*(self._ids_before_text() or ()), *ids]

    def _ids_before_text(self) -> list[int] | None:
        """Return the token ids that the engine adds before each text, such as a BOS token; None if unknown."""
        if self.engine.name == "llama.cpp":
            if self._running.added is None:
                self._running.added = llama_cpp_ids_before_text(self.url, self._settings)
            return self._running.added
        return None if self._known_tokenizer is None else ids_before_text(self._known_tokenizer)

    @property
    def tokenizer(self) -> TokenizerLike:
        """The model's tokenizer.

        Raises:
            EngineError: The model has no tokenizer.
        """
        if self._known_tokenizer is None:
            raise EngineError(
                f"token ids require the model's tokenizer, but {self.base_model or 'the model'} has no tokenizer.json; "
                "pass tokenizer="
            )
        return self._known_tokenizer

    @cached_property
    def _token_cache(self) -> TokenCache:
        tokenizer = self.tokenizer
        return tokenizer if isinstance(tokenizer, TokenCache) else TokenCache(tokenizer)

    @cached_property
    def _known_tokenizer(self) -> TokenizerLike | None:
        path = Path(self.base_model) / "tokenizer.json"
        if self._tokenizer is not None or not self.base_model or not path.exists():
            return self._tokenizer
        return read_tokenizer(path)

    def _engine_error(self, message: str, fault: Fault, partial: Reply | None) -> EngineError:
        process = self._running.process
        why = process.why(_DYING) if process is not None and fault.kind in ("connection", "cut") else ""
        words = f"{message}\n{why}" if why else message
        return EngineError(words, kind=fault.kind, status=fault.status, partial=partial)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_model!r}, engine={self.engine.name!r}, {self.status()})"


def _engine_of(base_model: str, engine: str | Engine | None, url: str | None) -> Engine:
    """Return the named engine, or the model's default engine, or `OTHER` if neither is known."""
    if engine is not None:
        return engine_named(engine)
    if not base_model:
        return OTHER
    try:
        found = engine_for(base_model)
    except EngineError:
        # Accept an unknown model name if ``url`` is set, because a server may accept any model name.
        # Also accept an unknown name that is not a path, because a model name is enough to render prompts.
        path = Path(base_model)
        if url is None and (path.name != base_model or path.suffix.lower() == ".gguf" or path.exists()):
            raise
        return OTHER
    # A model directory or hub name doesn't reveal which engine runs at url=.
    return found if url is None or found.name != "vllm" else OTHER


class _CachedConversation(NamedTuple):
    """The token ids of a conversation's last prompt and response, which are in the engine's cache."""

    history: tuple[Msg, ...]
    prompt: list[int]
    answer: list[int]


class Bridged(ChatModule):
    """A local model for one conversation, in which each prompt extends the earlier token ids.

    Rendering and encoding a response again seldom reproduces the generated ids, so the engine's cache would no longer
    match. The next prompt therefore consists of the earlier token ids, followed by the text that the chat template adds
    (see :meth:`ChatTemplate.bridge`). The combined token ids are sent only if they decode to the text of the complete
    prompt, ignoring white space. The decoded text differs from the prompt's text if a budget trims messages, the
    instruction changes, or the template renders earlier turns differently. The class is not thread-safe.

    Args:
        sender: A function that returns the :class:`Sender` of the model's requests.
        ask: A function that creates a request; if ``as_ids`` is true, the prompt consists of token ids.
        template: The chat template, or None.
        tokenizer: The tokenizer.
        ids: The location of token ids in responses.
        stream: True to stream responses internally.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        ask: Callable[..., Exchange],
        template: ChatTemplate | None,
        tokenizer: TokenizerLike,
        ids: AnswerIds,
        *,
        stream: bool = False,
    ) -> None:
        super().__init__({}, stream=stream)
        self._sending, self._ask, self._template, self._tokenizer, self._ids = sender, ask, template, tokenizer, ids
        self._known: _CachedConversation | None = None

    def _open(self) -> None:
        """Do nothing, because the conversation uses the connection of its model."""

    def _sender(self) -> Sender:
        return self._sending()

    def _exchange(self, call: CallOptions) -> Exchange:
        template = self._template
        if template is None or bridge_refusal(template.jinja()):
            return self._ask(call)
        exchange = self._ask(call, as_ids=True)
        known = (*History.of(call.history).messages, *user_turn(exchange.user_text))
        whole: list[int] = exchange.request.payload["prompt"]
        prompt = self._extend_ids(template, known, exchange.tools, whole) or whole

        def keep(events: Sequence[object], message: Msg) -> None:
            answer = [token for event in events for token in _ids_at(event, self._ids.place)]
            # Keep the token ids only if none is missing: streams from llama.cpp omit the ids of partial characters.
            if answer and message.usage is not None and message.usage["completion_tokens"] == len(answer):
                self._known = _CachedConversation((*known, message), prompt, answer)

        request = exchange.request
        extra = {**request.params.get("extra_body", {}), **self._ids.fields}
        return exchange._replace(
            request=request._replace(payload={"prompt": prompt}, params={**request.params, "extra_body": extra}),
            reader=exchange.reader._replace(heard=keep),
        )

    def _extend_ids(
        self, template: ChatTemplate, known: tuple[Msg, ...], tools: Sequence[JsonObject], whole: list[int]
    ) -> list[int] | None:
        """Return ids that extend the cached ids, or None if they don't decode to the text of the complete prompt."""
        last, tokenizer = self._known, self._tokenizer
        if last is None or known[: len(last.history)] != last.history:
            return None
        ids = template.bridge(last.prompt, last.answer, known[len(last.history) :], tokenizer, tools)
        return ids if ids is not None and _words(ids, tokenizer) == _words(whole, tokenizer) else None


def _ids_at(answer: object, place: tuple[str | int, ...]) -> list[int]:
    # SDKs based on pydantic store unknown fields in model_extra.
    apart: dict[str, object] = getattr(answer, "model_extra", None) or {}
    found = value_at({**as_dict(answer), **apart}, place)
    return [token for token in found if isinstance(token, int)] if is_list(found) else []


def _words(ids: list[int], tokenizer: TokenizerLike) -> str:
    """Decode token ids, including control tokens, and remove all white space from the decoded text."""
    return "".join(backend_of(tokenizer).decode(ids).split())
