"""Local models: flat prompts to an engine, in the model's own form, and its raw text read back."""

from __future__ import annotations

import logging
import os
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from lazyprompt._base.secret import Secret, address_of
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.chat_templates.bridge import bridge_refusal
from lazyprompt.chat_templates.token_counter import read_tokenizer
from lazyprompt.errors import EngineError
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.reply import Reply, user_turn, value_at
from lazyprompt.messages.encoding import TokenCache, TokenizerLike, backend_of
from lazyprompt.messages.history import History, HistoryLike
from lazyprompt.modules._layout import Given, Layout, added_by, added_by_llama_cpp, layout_of, opens_thought
from lazyprompt.modules._reading import Exchange, text_reader
from lazyprompt.modules._sending import Sender
from lazyprompt.modules.chat import Call, ChatModule, Connection, check_params, check_settings
from lazyprompt.modules.clients._base import MAX_ANSWER_BYTES, Request, Settings
from lazyprompt.modules.engines import OTHER, AnswerIds, Engine, engine_for, engine_named
from lazyprompt.modules.process import EngineProcess, Status
from lazyprompt.safety.restoring import Restorer, pairs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.budget.budget import BudgetLike
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Rendered
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules.clients._faults import Fault
    from lazyprompt.modules.telemetry import CallHook
    from lazyprompt.rendering.markers import Markers

_LOG = logging.getLogger("lazyprompt")
# An engine may load a long prompt for a while before its first word.
TIMEOUT = 600.0
RETRIES = 2
# Engines have defaults from 16 tokens to no end at all.
MAX_TOKENS = 1024
# How long a process that dies may take to be seen to be gone, in seconds.
_DYING = 2.0
_NOWHERE = "http://127.0.0.1"


class _Running(Connection):
    """The engine of a module in this process, shared by modules: its process, and the connection to it."""

    def __init__(self) -> None:
        super().__init__()
        self.starting = Lock()
        self.process: EngineProcess | None = None
        self.url = ""
        self.added: list[int] | None = None  # what llama.cpp puts before each text, once it was asked


class TrainableModule(ChatModule):
    """A local model on an engine: llama.cpp, vLLM, SGLang, LMDeploy, Ollama, or a server of OpenAI's completions.

    Its prompts are flat text, written by the model's own chat template (that of the GGUF file or directory, or the one
    that is given), or by the markers of its family. :meth:`start` starts llama.cpp or vLLM. Any other engine runs
    already, at ``url``.

    Args:
        base_model: A GGUF file, a directory of weights, ``owner/name`` at a hub, or Ollama's ``name:tag``.
        engine: The engine; None takes the one that serves such a model. At a ``url``, the server of weights is unknown
            unless it is named, and is only sent fields that all servers know.
        url: The address of an engine that runs already, without a path.
        chat_template: The model's chat template, its path or its text; the special tokens are the model's own where the
            template brings none.
        markers: The markers, or the family, in the place of a template.
        answers: The form of the model's answers (a family or a form, as of :class:`~lazyprompt.ResponseParser`); None
            takes what its template writes, or else that of its name.
        tokenizer: The model's tokenizer, or a :class:`~lazyprompt.TokenCache` that modules share, with which
            conversations go on by token ids (:meth:`continued`); None takes ``tokenizer.json`` of the directory where
            ids are sent.
        safe_tokens: True if token ids are sent, in which nothing that users say can be a control token.
        timeout: Seconds to wait for a connection, for an answer as a whole, and for each event of a stream; a whole
            stream may take 60 times as long.
        max_answer_bytes: The decompressed size limit of an answer, and of each event of a stream (16 MB); a whole
            stream may have four times as many bytes.
        retries: The number of further attempts where the engine is overloaded or the connection is lost.
        concurrency: How many calls are under way at once; None for any number.
        budget: The budget that makes each prompt fit.
        hooks: Functions that are given the record of each call when it is over.
        api_key: The key, where the engine at ``url`` asks for one.
        options: Further arguments of the client's constructor.
        params: Parameters of every call: ``temperature``, ``top_p``, ``max_tokens`` (1024 by default),
            ``stop``, ``seed``, or the client's own.

    Raises:
        EngineError: There is no such engine, no such file, or the directory holds no model.
        TemplateError: There is no such family, or the template is wrong.
    """

    _unshared = ("_client", "_connection", "_running")

    def __init__(  # noqa: PLR0913 - all but one are given by name
        self,
        base_model: str | os.PathLike[str] = "",
        *,
        engine: str | None = None,
        url: str | None = None,
        chat_template: ChatTemplate | str | Path | None = None,
        markers: Markers | str | None = None,
        answers: str | None = None,
        tokenizer: TokenizerLike | None = None,
        safe_tokens: bool = False,
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
        # No variable holds the key: whatever shows the locals of a traceback would show it.
        api_key = Secret(api_key) if isinstance(api_key, str) else api_key
        super().__init__({"max_tokens": MAX_TOKENS, **params}, budget)
        self.base_model: str = os.path.expanduser(os.fspath(base_model))  # noqa: PTH111 - a name at a hub is no path
        self.engine = _engine_of(self.base_model, engine, url)
        if url is not None and not url.startswith(("http://", "https://")):
            raise EngineError(f"url= is where the engine is, as http://127.0.0.1:8000, not {address_of(url)!r}")
        # Without /v1: that is its client's.
        self._url = None if url is None else address_of(url.rstrip("/").removesuffix("/v1"))
        self._given = Given(chat_template, markers, answers)
        self._given.check()
        self._tokenizer, self._safe_tokens = tokenizer, safe_tokens
        settings = Settings(None, api_key, timeout, retries, dict(options or {}), max_answer_bytes)
        self._settings = check_settings(settings, concurrency, EngineError)
        self._concurrency, self._hooks = concurrency, tuple(hooks)
        self._open()
        if safe_tokens and not self.engine.takes_ids:
            raise EngineError(f"{self.engine.name} takes no token ids as a prompt: safe_tokens is not possible with it")

    def _open(self) -> None:
        """Prepare the engine's place, which a copy does not share."""
        self._connection = self._running = _Running()
        # It is only asked for the names of parameters, wherever the engine will be.
        self._client = self.engine.connect(self._settings._replace(base_url=self._url or _NOWHERE))

    def start(
        self, *, port: int | None = None, timeout: float = 120.0, log: str | Path | None = None, **options: object
    ) -> Self:
        """Start the engine and wait until it is ready.

        An engine that runs already is left alone. With ``url=``, a log record of ``lazyprompt`` says so.

        Args:
            port: The port at 127.0.0.1; None for any that is free.
            timeout: Seconds that it may take to be ready.
            log: The file that its output is appended to; None for a temporary one.
            options: The engine's own options, as ``max_model_len=4096``.

        Returns:
            The module itself.

        Raises:
            EngineError: It did not start; the message has the last lines of its log, its command and what to do.
        """
        if self._url is not None:
            _LOG.info("start() does nothing: the engine at %r was started elsewhere", self._url)
            return self
        if not self.base_model:
            raise EngineError("there is no model to start an engine with: give base_model")
        if self.engine is OTHER:
            engine_for(self.base_model)  # says why it is none
        with self._running.starting:
            if self.status() != "running":
                self._running.process = EngineProcess(
                    self.engine, self.base_model, port=port, options=options, log=log, timeout=timeout
                )
                self._running.process.start()
        return self

    def stop(self) -> None:
        """End the engine and wait until nothing is left of it; nothing if it does not run.

        Calls that are under way fail.
        """
        if self._running.process is not None:
            self._running.process.stop()
        self.close()

    def status(self) -> Status:
        """Return the engine's state: stopped, starting, running or died; with ``url`` it counts as running."""
        if self._url is not None:
            return "running"
        return "stopped" if self._running.process is None else self._running.process.status()

    @property
    def url(self) -> str:
        """The engine's address.

        Raises:
            EngineError: It was not started.
        """
        if self._url is not None:
            return self._url
        if self._running.process is None or self._running.process.status() == "stopped":
            raise EngineError("the engine was not started: call start(), or give url= of one that runs")
        return self._running.process.url

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def render(self, input: object = None, history: HistoryLike | None = None, tools: ToolsLike = None) -> Rendered:
        """Return the flat prompt of a call, with its segments.

        Args:
            input: As of a call.
            history: The turns before.
            tools: The tools that the model may call.
        """
        prompter = self._budgeted(self._prompter)
        target = self.layout.target(prompter)
        prompt = self._filled(prompter, Call(input, history, tools, None, {}))
        return target.segments(prompter.fitted(prompt, target)[0])

    @cached_property
    def layout(self) -> Layout:
        """The layout of prompts; found out when it is first needed.

        Raises:
            TemplateError: There is neither a template nor a family for the model.
        """
        return layout_of(self.base_model, self._given)

    def continued(self) -> ChatModule:
        """Return the model for one conversation: each prompt goes on with the ids that the engine was given and wrote.

        Nothing of it is encoded again then, and the engine has it all in its cache. That needs the tokenizer
        (``tokenizer=``), an engine that gives its ids back, and a chat template that goes on with its own prompts; what
        does not go so is sent as ever.
        """
        ids = self.engine.answer_ids
        if self._tokenizer is None or ids is None:
            return self
        return Bridged(self._sender, self._exchange, self.layout.template, self._tokenizer, ids)

    def _sender(self) -> Sender:
        url, running = self.url, self._running
        with running.lock:
            if running.sender is None or running.url != url:
                self.close()
                client = self.engine.connect(self._settings._replace(base_url=url))
                named, hooks = self.engine.name, self._hooks
                running.sender = Sender(client, named, self._settings, self._concurrency, hooks, self._failed)
                running.url, running.added = url, None
            return running.sender

    def _exchange(self, call: Call, *, as_ids: bool = False) -> Exchange:
        """Return the request of a call: as text, or as ids where they are asked for here or by ``safe_tokens``."""
        layout = self.layout
        prompter, structure, asked = self._asked(call)
        prompt = self._filled(prompter, call)
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
        parser = partial(ResponseParser, layout.answers, thinking=opens_thought(rendered.text), tools=offered)
        reader = text_reader(parser, self._client.collector, Restorer(pairs_in(rendered.parts).items()))
        return Exchange(request, reader, structure, prompt.said, trim, tools=offered)

    def _text(self, rendered: Rendered, *, own_bos: bool) -> str:
        """Return a prompt as text, with a BOS of its own only if the engine adds none or need not."""
        if own_bos and self.engine.no_bos is None and self._added() != []:
            return rendered.text.removeprefix(self.layout.bos)
        return rendered.text

    def _ids(self, rendered: Rendered, *, own_bos: bool) -> list[int]:
        """Return a prompt as the ids of its text at the engine, which adds nothing to ids by itself."""
        ids = rendered.encode(self._token_cache)
        return ids if own_bos else [*(self._added() or ()), *ids]

    def _added(self) -> list[int] | None:
        """Return the ids that the engine puts before each text, as a BOS; None if they are not known."""
        if self.engine.name == "llama.cpp":
            if self._running.added is None:
                self._running.added = added_by_llama_cpp(self.url, self._settings)
            return self._running.added
        return None if self._known_tokenizer is None else added_by(self._known_tokenizer)

    @property
    def tokenizer(self) -> TokenizerLike:
        """The model's tokenizer.

        Raises:
            EngineError: There is none.
        """
        if self._known_tokenizer is None:
            raise EngineError(
                f"token ids need the model's tokenizer, and {self.base_model or 'the model'} has no tokenizer.json "
                "beside it: give tokenizer="
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

    def _failed(self, message: str, fault: Fault, partial: Reply | None) -> EngineError:
        process = self._running.process
        why = process.why(_DYING) if process is not None and fault.kind in ("connection", "cut") else ""
        words = f"{message}\n{why}" if why else message
        return EngineError(words, kind=fault.kind, status=fault.status, partial=partial)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_model!r}, engine={self.engine.name!r}, {self.status()})"


def _engine_of(base_model: str, engine: str | None, url: str | None) -> Engine:
    """Return the engine: the one that is named, or that serves such a model, or any other."""
    if engine is not None:
        return engine_named(engine)
    if not base_model:
        return OTHER
    try:
        found = engine_for(base_model)
    except EngineError:
        # What runs at a url is known to whoever started it; and a mere name is enough to lay prompts out.
        path = Path(base_model)
        if url is None and (path.name != base_model or path.suffix.lower() == ".gguf" or path.exists()):
            raise
        return OTHER
    # At a url, weights do not tell the engine.
    return found if url is None or found.name != "vllm" else OTHER


class _CachedConversation(NamedTuple):
    """The ids of a conversation that an engine has in its cache: of its prompt, and of its answer."""

    history: tuple[Msg, ...]
    prompt: list[int]
    answer: list[int]


class Bridged(ChatModule):
    """A local model in one conversation that goes on by token ids; not to be used by several threads at once.

    Rendered and encoded again, a model's words seldom become the ids that it wrote; then the engine finds little of the
    conversation in its cache. So the next prompt is made of the ids that the engine was given and wrote, and of the
    chat template's text behind them (:meth:`ChatTemplate.bridge`). It is sent only if it decodes, white space aside, to
    the text of the whole prompt: not where a budget trims, another instruction was given, or a template writes past
    turns otherwise.

    Args:
        sender: Returns what sends its requests.
        ask: Makes its requests, of token ids with ``as_ids``.
        template: Its chat template; None where it has none.
        tokenizer: Its tokenizer.
        ids: The way to the ids of its answers.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        ask: Callable[..., Exchange],
        template: ChatTemplate | None,
        tokenizer: TokenizerLike,
        ids: AnswerIds,
    ) -> None:
        super().__init__({})
        self._sending, self._ask, self._template, self._tokenizer, self._ids = sender, ask, template, tokenizer, ids
        self._known: _CachedConversation | None = None

    def _open(self) -> None:
        """Do nothing: it asks through the connection of the model that it was made of."""

    def _sender(self) -> Sender:
        return self._sending()

    def _exchange(self, call: Call) -> Exchange:
        template = self._template
        if template is None or bridge_refusal(template.jinja()):
            return self._ask(call)
        exchange = self._ask(call, as_ids=True)
        known = (*History.of(call.history).messages, *user_turn(exchange.user_text))
        whole = cast("list[int]", exchange.request.payload["prompt"])
        prompt = self._going_on(template, known, exchange.tools, whole) or whole

        def keep(events: Sequence[object], message: Msg) -> None:
            answer = [token for event in events for token in _ids_at(event, self._ids.place)]
            # Only if they are all there: streams of llama.cpp leave out those of half characters.
            if answer and message.usage is not None and message.usage["completion_tokens"] == len(answer):
                self._known = _CachedConversation((*known, message), prompt, answer)

        request = exchange.request
        extra = {**request.params.get("extra_body", {}), **self._ids.fields}
        return exchange._replace(
            request=request._replace(payload={"prompt": prompt}, params={**request.params, "extra_body": extra}),
            reader=exchange.reader._replace(heard=keep),
        )

    def _going_on(
        self, template: ChatTemplate, known: tuple[Msg, ...], tools: Sequence[JsonObject], whole: list[int]
    ) -> list[int] | None:
        """Return ids that go on with those of the engine; None if they decode to another text than the whole prompt."""
        last, tokenizer = self._known, self._tokenizer
        if last is None or known[: len(last.history)] != last.history:
            return None
        ids = template.bridge(last.prompt, last.answer, known[len(last.history) :], tokenizer, tools)
        return ids if ids is not None and _words(ids, tokenizer) == _words(whole, tokenizer) else None


def _ids_at(answer: object, place: tuple[str | int, ...]) -> list[int]:
    # What the client does not know lies apart, some of it under names that look private.
    apart: dict[str, object] = getattr(answer, "model_extra", None) or {}
    found = value_at({**as_dict(answer), **apart}, place)
    return cast("list[int]", found) if isinstance(found, list) else []


def _words(ids: list[int], tokenizer: TokenizerLike) -> str:
    """Decode ids, control tokens too, without white space."""
    return "".join(backend_of(tokenizer).decode(ids).split())
