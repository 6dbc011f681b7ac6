"""Local models: flat prompts to an engine, in the model's own form, and its raw text read back."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from lazyprompt.answers.parser import ResponseParser
from lazyprompt.errors import EngineError, TemplateError, missing_extra
from lazyprompt.modules._base import ChatModule
from lazyprompt.modules._reading import Exchange, TextReader
from lazyprompt.modules._sending import Limits, Sender
from lazyprompt.modules.client import Request, Settings
from lazyprompt.modules.engines import OTHER, engine_for, engine_named
from lazyprompt.modules.process import EngineProcess
from lazyprompt.secret import Secret
from lazyprompt.text.chat.template import ChatTemplate
from lazyprompt.text.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import tokenizers

    from lazyprompt.budgeted import BudgetLike
    from lazyprompt.encoding import TokenizerLike
    from lazyprompt.history import History, HistoryLike
    from lazyprompt.modules.client import Fault
    from lazyprompt.modules.engines import Engine
    from lazyprompt.modules.process import Status
    from lazyprompt.modules.reply import Reply
    from lazyprompt.modules.structured import ResponseFormat
    from lazyprompt.modules.telemetry import CallHook
    from lazyprompt.prompt import Rendered
    from lazyprompt.prompt_maker import ToolsLike
    from lazyprompt.prompter import Prompter

# An engine may load a long prompt for a while before its first word.
TIMEOUT = 600.0
RETRIES = 2
# Engines have defaults from 16 tokens to no end at all.
MAX_TOKENS = 1024
# How long a process that dies may take to be seen to be gone, in seconds.
_DYING = 2.0


class _Layout(NamedTuple):
    """How a model's prompts are laid out.

    Attributes:
        template: Its chat template; None where markers lay them out.
        markers: Its markers.
        answers: In which form it answers, as of :class:`~lazyprompt.ResponseParser`.
    """

    template: ChatTemplate | None
    markers: Markers
    answers: str

    @property
    def bos(self) -> str:
        """What its prompts begin with, where that is the beginning of text."""
        if self.template is not None:
            return self.template.special_tokens.get("bos_token", "")
        return self.markers.bos

    def fitted(self, prompter: Prompter) -> Prompter:
        """A prompter that lays prompts out so."""
        if self.template is not None:
            return prompter.with_chat_template(self.template)
        return prompter.with_markers(self.markers)


class TrainableModule(ChatModule):
    """A local model on an engine: llama.cpp, vLLM, transformers, SGLang, LMDeploy, TGI or Ollama.

    Its prompts are flat text, laid out by the model's own chat template (that of the GGUF file or directory, or the one
    that is given), or by the markers of its family. The engine is started by :meth:`start`, or runs already at ``url``.

    Args:
        base_model: A GGUF file, a directory of weights, ``owner/name`` at a hub, or Ollama's ``name:tag``.
        engine: The engine; None takes the one that serves such a model.
        url: Where an engine runs already.
        chat_template: The model's chat template, its path or its text.
        markers: The markers, or the family, in the place of a template.
        answers: In which form the model answers (a family or a form, as of :class:`~lazyprompt.ResponseParser`); None
            takes that of its name, or of its template.
        tokenizer: The model's tokenizer; None takes ``tokenizer.json`` of the directory where it is needed.
        safe_tokens: Whether token ids are sent, in which nothing that users say can be a control token.
        timeout: Seconds to wait for a connection, and for each piece of an answer.
        retries: How often a call is tried again where the engine is overloaded or the connection is lost.
        concurrency: How many calls are under way at once; None for any number.
        budget: What makes each prompt fit.
        hooks: What is told of each call when it is over.
        api_key: The key, where the engine at ``url`` asks for one.
        options: Further arguments of the client's constructor.
        params: Parameters of every call: ``temperature``, ``top_p``, ``max_tokens`` (1024 where nothing is said),
            ``stop``, ``seed``, or the client's own.

    Raises:
        EngineError: There is no such engine, or it is not to be seen which one serves the model.
        TemplateError: There is no such family, or the template is wrong.
    """

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
        retries: int = RETRIES,
        concurrency: int | None = None,
        budget: BudgetLike | None = None,
        hooks: Iterable[CallHook] = (),
        api_key: str | Secret | None = None,
        options: Mapping[str, Any] | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> None:
        super().__init__({"max_tokens": MAX_TOKENS, **params})
        self.base_model = os.path.expanduser(os.fspath(base_model))  # noqa: PTH111 - a name at a hub is no path
        self.engine = _engine_of(self.base_model, engine, url)
        self._url = None if url is None else url.rstrip("/").removesuffix("/v1")
        self._given = (chat_template, markers, answers)
        self._tokenizer, self._safe_tokens = tokenizer, safe_tokens
        key = Secret(api_key) if isinstance(api_key, str) else api_key
        self._settings = Settings(None, key, timeout, retries, dict(options or {}))
        self._limits, self._hooks = Limits(retries, concurrency), tuple(hooks)
        self._budget = budget
        self._lock = Lock()
        self._process: EngineProcess | None = None
        self._made: tuple[str, Sender] | None = None
        self._known_layout: _Layout | None = None
        if safe_tokens and not self.engine.takes_ids:
            raise EngineError(f"{self.engine.name} takes no token ids as a prompt: safe_tokens is not possible with it")

    def start(
        self,
        *,
        port: int | None = None,
        timeout: float = 120.0,
        log: str | Path | None = None,
        **options: object,
    ) -> Self:
        """Start the engine and wait until it is ready; nothing if it runs.

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
            raise EngineError(f"the engine runs already, at {self._url}: with url= there is nothing to start")
        if not self.base_model:
            raise EngineError("there is no model to start an engine with: give base_model")
        with self._lock:
            if self._process is None or self._process.status() != "running":
                self._process = EngineProcess(
                    self.engine, self.base_model, port=port, options=options, log=log, timeout=timeout
                )
            process = self._process
        process.start()
        return self

    def stop(self) -> None:
        """End the engine and wait until nothing is left of it; nothing if it does not run."""
        self.close()
        if self._process is not None:
            self._process.stop()

    def status(self) -> Status:
        """What the engine does: stopped, starting, running, or died by itself; with ``url`` it counts as running."""
        if self._url is not None:
            return "running"
        return "stopped" if self._process is None else self._process.status()

    @property
    def url(self) -> str:
        """Where the engine is.

        Raises:
            EngineError: It was not started.
        """
        if self._url is not None:
            return self._url
        if self._process is None or self._process.status() == "stopped":
            raise EngineError("the engine was not started: call start(), or give url= of one that runs")
        return self._process.url

    def close(self) -> None:
        """Close the connections of threads; the engine runs on."""
        if self._made is not None:
            self._made[1].client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if self._made is not None:
            await self._made[1].client.aclose()

    def __enter__(self) -> Self:
        return self if self._url is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def render(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
    ) -> Rendered:
        """The flat prompt of a call, with its segments.

        Args:
            input: As of a call.
            history: What was said before.
            tools: What the model may call.
        """
        return self._fitted(self._prompter).render(input, self._past(history), tools)

    @property
    def layout(self) -> _Layout:
        """How prompts are laid out; found out when it is first needed.

        Raises:
            TemplateError: There is neither a template nor a family for the model.
        """
        if self._known_layout is None:
            self._known_layout = _layout_of(self.base_model, *self._given)
        return self._known_layout

    def _fitted(self, prompter: Prompter) -> Prompter:
        fitted = self.layout.fitted(prompter)
        return fitted if self._budget is None else fitted.with_budget(self._budget)

    def _sender(self) -> Sender:
        url = self.url
        with self._lock:
            if self._made is None or self._made[0] != url:
                client = self.engine.connect(self._settings._replace(base_url=url + self.engine.path))
                self._made = (url, Sender(client, self.engine.name, self._limits, self._hooks, self._failed))
            return self._made[1]

    def _exchange(
        self,
        input: object,  # noqa: A002 - the name of the documents
        history: HistoryLike | History | None,
        tools: ToolsLike,
        response_format: ResponseFormat | None,
        params: Mapping[str, Any],
    ) -> Exchange:
        client, layout = self._sender().client, self.layout
        structure = self._structure(response_format)
        asked = None if structure is None else client.structured(structure.schema, structure.name)
        prompter = self._prompter
        if structure is not None and asked is None:
            prompter = prompter.with_added_system(structure.instruction)
        prompter = self._fitted(prompter)
        rendered = prompter.render(input, self._past(history), tools)
        text = rendered.text
        own_bos = bool(layout.bos) and text.startswith(layout.bos)
        prompt: str | list[int] = text
        if self._safe_tokens:
            prompt = rendered.encode(self.tokenizer)
        elif own_bos and self.engine.no_bos is None and self._adds_bos():
            prompt = text.removeprefix(layout.bos)
        further = [client.params(self._common(params, layout.markers.stop)), *([asked] if asked else [])]
        request = Request(
            self.base_model or "default", {"prompt": prompt}, self.engine.params(*further, own_bos=own_bos)
        )
        offered = prompter.fill(input, self._past(history), tools).tools
        parser = ResponseParser(layout.answers, thinking=_opens_thought(text), tools=list(offered))
        return Exchange(request, TextReader(parser, client.collector), structure)

    @property
    def tokenizer(self) -> TokenizerLike:
        """The model's tokenizer.

        Raises:
            EngineError: There is none.
        """
        if self._tokenizer is None:
            path = Path(self.base_model) / "tokenizer.json"
            if not path.is_file():
                raise EngineError(
                    f"token ids need the model's tokenizer, and {self.base_model or 'the model'} has no tokenizer.json "
                    "beside it: give tokenizer="
                )
            self._tokenizer = _tokenizer_in(path)
        return self._tokenizer

    def _adds_bos(self) -> bool:
        """Whether the engine's tokenizer puts a beginning of text before each text; most do that have one."""
        path = Path(self.base_model) / "tokenizer.json"
        return not path.is_file() or bool(_tokenizer_in(path).encode("").ids)

    def _failed(self, message: str, fault: Fault, partial: Reply | None) -> EngineError:
        lost = self._process is not None and fault.kind in ("connection", "cut", "timeout", "server")
        why = self._process.why(_DYING) if lost and self._process is not None else ""
        told = f"{message}\n{why}" if why else message
        return EngineError(told, kind=fault.kind, status=fault.status, partial=partial)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_model!r}, engine={self.engine.name!r}, {self.status()})"


def _engine_of(base_model: str, engine: str | None, url: str | None) -> Engine:
    """The engine: the one that is named, or that serves such a model, or any other at a url."""
    if engine is not None:
        return engine_named(engine)
    if url is None:
        return engine_for(base_model)
    try:
        return engine_for(base_model)
    except EngineError:  # what runs there is known to whoever started it
        return OTHER


def _layout_of(
    base_model: str, template: ChatTemplate | str | Path | None, markers: Markers | str | None, answers: str | None
) -> _Layout:
    """How a model's prompts are laid out: as it was said, by the template that it brings, or by its family."""
    if template is not None and markers is not None:
        raise TemplateError("chat_template= and markers= both say how prompts are laid out; give one of them")
    if markers is None and template is None and base_model and Path(base_model).exists():
        template = _own_template(base_model)
    if template is not None:
        found = template if isinstance(template, ChatTemplate) else ChatTemplate.load(template)
        return _Layout(found, found.markers, answers or _answers_of(base_model, found.text))
    if markers is None and not base_model:
        raise TemplateError("how prompts are laid out is not to be seen: give base_model, chat_template= or markers=")
    known = markers if isinstance(markers, Markers) else Markers.for_model(markers or base_model)
    return _Layout(None, known, answers or known.family or "hermes")


def _own_template(base_model: str) -> ChatTemplate | None:
    """The chat template in a model's file or directory; None where it has none."""
    try:
        return ChatTemplate.load(base_model)
    except TemplateError:
        return None


def _answers_of(base_model: str, template: str) -> str:
    """In which form a model answers."""
    try:
        ResponseParser(base_model)
    except TemplateError:
        return ResponseParser.form_in(template)
    return base_model


def _opens_thought(prompt: str) -> bool:
    """Whether a prompt ends within a thought, so that the answer begins in it."""
    tail = prompt[-100:]
    return any(tail.rfind(begin) > tail.rfind(end) for begin, end in _THOUGHTS)


_THOUGHTS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thought>", "</thought>"))


def _tokenizer_in(path: Path) -> tokenizers.Tokenizer:
    try:
        import tokenizers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("tokenizers", "hf") from error
    return tokenizers.Tokenizer.from_file(str(path))
