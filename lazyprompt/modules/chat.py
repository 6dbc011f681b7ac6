"""Models with a prompter attached, and conversations with them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, cast

from lazyprompt._base.files import read_regular, write_whole
from lazyprompt._base.json import checked, is_mapping, is_sequence
from lazyprompt.budget.budget import BudgetLike, read_budget
from lazyprompt.errors import HistoryError, ModuleError, TemplateError
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.history import EMPTY_HISTORY, History, HistoryLike, PastLike, messages_from
from lazyprompt.messages.msg import Msg, ToolResultBlock, ToolUseBlock, message_of
from lazyprompt.messages.native import Native
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.modules._reading import AnswerSchema, AsyncReplyStream, Exchange, ReplyStream, ResponseFormat
from lazyprompt.modules.tool_runner import ToolRunner, output_of
from lazyprompt.prompters.kinds import ChatPrompter, EmptyPrompter
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.templates.instruction import INPUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from lazyprompt.answers.message_builder import Delta
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules._sending import Sender
    from lazyprompt.modules.clients._base import ClientSettings, OfficialClient

    class HasPrompter(Protocol):
        """A prompt in a file."""

        @property
        def prompter(self) -> Prompter:
            """The prompt as a prompter."""
            ...

    PrompterLike = Prompter | HasPrompter | str | Mapping[str, str] | None

Step: TypeAlias = "Delta | Reply | ToolResultBlock"
"""A step of a conversation with tools: a piece of an answer, an answer, or a tool result."""

_FORMAT = "lazyprompt.chat/1"
# The size limit of a saved conversation, in bytes.
_MOST = 1_073_741_824


class CallOptions(NamedTuple):
    """The arguments of a call.

    Attributes:
        input: The input, as in :meth:`lazyprompt.Prompter.generate_prompt`.
        history: The earlier messages.
        tools: The tools that the model may call.
        response_format: A pydantic model or JSON schema for the answer.
        params: Other parameters of this call.
    """

    input: object
    history: HistoryLike | History | None
    tools: ToolsLike
    response_format: ResponseFormat | None
    params: Mapping[str, Any]


class ChatModule(ABC):
    """A model with a prompter attached.

    Args:
        params: Parameters of every call: ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a string or a list) and
            ``seed``, or parameters of the client.
    """

    _unshared: ClassVar[tuple[str, ...]] = ("_client", "_connection")
    _client: OfficialClient
    _connection: Connection

    def __init__(self, params: Mapping[str, Any], budget: BudgetLike | None = None, *, stream: bool = False) -> None:
        self._params = dict(params)
        self._streams = stream
        self._budget = None if budget is None else read_budget(budget)
        self._prompter: Prompter = ChatPrompter(system="")
        self._history = EMPTY_HISTORY

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, without the connection and, in a pickle, without the key."""
        return {name: value for name, value in vars(self).items() if name not in self._unshared}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Prepare a connection; copies don't share it."""

    def close(self) -> None:
        """Close the connections of threads; the module can be used again.

        Calls in progress may time out.
        """
        if (sender := self._connection.sender) is not None:
            sender.client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if (sender := self._connection.sender) is not None:
            await sender.client.aclose()

    def prompt(self, prompter: PrompterLike = None, history: HistoryLike | None = None) -> Self:
        """Attach a prompter; it is not changed, so it can serve many modules.

        Args:
            prompter: A prompter; a prompt file, whose outputs become the ``response_format``; an instruction as text or
                as ``{"system": ..., "user": ...}``, for a :class:`~lazyprompt.ChatPrompter`; None for an
                :class:`~lazyprompt.EmptyPrompter`, which sends the caller's text unchanged, with control sequences.
            history: Messages at the beginning of every conversation.

        Returns:
            The module itself.

        Raises:
            TemplateError: The argument is no prompter, or the instruction is invalid.
            HistoryError: The history has a wrong form.
        """
        # One statement: an error leaves the module unchanged.
        self._prompter, self._history = _prompter_of(prompter), History.of(history)
        return self

    def share(self, prompt: PrompterLike = None, history: HistoryLike | None = None) -> Self:
        """Return a module with its own prompter on the same client or running engine.

        Both modules use the same connections and limits, and either can start and stop the engine.

        Args:
            prompt: A prompter, as in :meth:`prompt`; None keeps this module's prompter.
            history: Messages at the beginning of every conversation of the new module. None keeps this module's if the
                prompter is kept.

        Returns:
            The new module.

        Raises:
            TemplateError: The argument is no prompter, or the instruction is invalid.
            HistoryError: The history has a wrong form.
        """
        shared = object.__new__(type(self))
        # Not copy.copy: a copy gets a new connection.
        vars(shared).update(vars(self))
        if prompt is not None:
            return shared.prompt(prompt, history)
        return shared if history is None else shared.prompt(self._prompter, history)

    @property
    def prompter(self) -> Prompter:
        """The attached prompter."""
        return self._prompter

    def __call__(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> Reply:
        """Ask the model.

        Args:
            input: The input, as in :meth:`lazyprompt.Prompter.generate_prompt`.
            history: The earlier messages.
            tools: The tools that the model may call. Functions are described, never run; calls are in the reply.
            response_format: A pydantic model or JSON schema for the answer, which is then in ``reply.parsed``.
            params: Other parameters of this call.

        Returns:
            The answer.

        Raises:
            ModuleError: The call failed: the error has the ``kind`` of failure, and the received part as ``partial``.
            EngineError: The call of a local engine failed.
            LazyPromptError: The prompt is invalid.
        """
        if not self._streams:
            return self._sender().send(self._exchange(CallOptions(input, history, tools, response_format, params)))
        stream = self.stream(input, history, tools, response_format=response_format, **params)
        for _ in stream.deltas():
            pass
        return stream.reply

    async def acall(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> Reply:
        """Async version of a call; cancelling it closes the connection."""
        if not self._streams:
            call = CallOptions(input, history, tools, response_format, params)
            return await self._sender().asend(lambda: self._exchange(call))
        async with self.astream(input, history, tools, response_format=response_format, **params) as stream:
            async for _ in stream.deltas():
                pass
        return stream.reply

    def stream(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> ReplyStream:
        """Ask the model, and return its answer as a stream.

        Args:
            input: The input, as in a call.
            history: The earlier messages.
            tools: The tools that the model may call.
            response_format: A pydantic model or JSON schema for the answer.
            params: Other parameters of this call.

        Returns:
            An iterator of pieces of text, whose ``reply`` is the whole answer at the end. The request is sent with the
            first iteration.
        """
        exchange = self._exchange(CallOptions(input, history, tools, response_format, params))
        sender = self._sender()
        return ReplyStream(lambda ended: sender.stream(exchange, ended))

    def astream(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> AsyncReplyStream:
        """Async version of :meth:`stream`, for ``async for``; iteration also renders the prompt."""
        call = CallOptions(input, history, tools, response_format, params)
        sender = self._sender()
        return AsyncReplyStream(lambda ended: sender.astream(lambda: self._exchange(call), ended))

    def payload(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> Payload:
        """Return the payload of a call with these arguments; nothing is sent.

        Args:
            input: The input, as in a call.
            history: The earlier messages.
            tools: The tools that the model may call.
            response_format: A pydantic model or JSON schema for the answer.
            params: Other parameters of this call.

        Returns:
            The arguments of the client's call, with the formatter's report.
        """
        request = self._exchange(CallOptions(input, history, tools, response_format, params)).request
        made = request.payload
        own = made if isinstance(made, Payload) else Payload({})
        sent = {"model": request.model, **made, **request.params}
        return Payload(sent, own.report, own.trim, own.neutralised)

    def continued(self) -> ChatModule:
        """Return a module for one conversation, which can reuse the state that the engine caches."""
        return self

    def chat(
        self,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        values: Mapping[str, object] | None = None,
    ) -> Chat:
        """Begin a conversation with the model.

        Args:
            history: The earlier messages.
            tools: The tools that the model may call.
            values: Values for slots of the prompter, as in :meth:`lazyprompt.Prompter.partial`.

        Raises:
            SlotError: The prompter has no slot for a value.
        """
        module = self if not values else self.share(self._prompter.partial(**values), self._history.messages)
        return Chat(module, history, tools)

    @abstractmethod
    def _sender(self) -> Sender:
        """Return the sender of requests; the first call creates it."""

    @abstractmethod
    def _exchange(self, call: CallOptions) -> Exchange:
        """Return the request of a call, and the reader of its answer."""

    def _fill(self, prompter: Prompter, call: CallOptions) -> Prompt:
        """Return the prompt of a call."""
        return prompter.fill(call.input, cast("HistoryLike | None", self._past(call.history)), call.tools)

    def _past(self, history: PastLike) -> PastLike:
        """Return the module's history followed by that of the call."""
        return self._history + History.of(history) if self._history else history

    def _common(self, params: Mapping[str, Any], stops: Sequence[str] = ()) -> dict[str, Any]:
        """Return the module's parameters updated by those of a call, with ``stop`` as a list."""
        given = {**self._params, **params}
        if "llm_chat_history" in given:
            raise ModuleError("'llm_chat_history' is LazyLLM's name for the earlier messages; give them as history=")
        stop: object = given.pop("stop", None) or ()
        own = [stop] if isinstance(stop, str) else stop
        texts = [each for each in own if isinstance(each, str)] if is_sequence(own) else []
        if not is_sequence(own) or len(texts) < len(own):
            raise ModuleError(f"stop is a string or a list of strings, not {stop!r}")
        all_stops = [*texts, *stops]
        return {
            **{name: value for name, value in given.items() if value is not None},
            **({"stop": list(dict.fromkeys(all_stops))} if all_stops else {}),
        }

    def _asked(self, call: CallOptions) -> tuple[Prompter, AnswerSchema | None, dict[str, Any]]:
        """Return the prompter of a call, the schema of its answer, and the parameters that request it."""
        form = self._prompter.response_format if call.response_format is None else call.response_format
        structure = None if form is None else AnswerSchema.of(form)
        asked = None if structure is None else self._client.structured(structure.schema, structure.name)
        prompter = self._prompter
        if structure is not None and asked is None:
            prompter = prompter.with_added_system(structure.instruction)
        return self._with_budget(prompter), structure, asked or {}

    def _with_budget(self, prompter: Prompter) -> Prompter:
        return prompter if self._budget is None else prompter.with_budget(self._budget)


class Chat:
    """A conversation: each call is a turn, and the history is kept.

    A failed call leaves the history unchanged. A budget of the module or its prompter trims the payload, never the
    history. Not thread-safe.

    Args:
        module: The model.
        history: The earlier messages.
        tools: The tools that the model may call.

    Raises:
        HistoryError: The history has a wrong form.
        ToolsError: A tool cannot be described.
    """

    def __init__(self, module: ChatModule, history: HistoryLike | None = None, tools: ToolsLike = None) -> None:
        self.module = module
        self._asked = module.continued()
        self._runner = ToolRunner.of(tools)
        self._history: tuple[Msg, ...] = tuple(messages_from(history))
        # The last turn's values for slots outside the user's text; a call without input uses them again.
        self._values: Mapping[str, object] = {}

    @property
    def history(self) -> Sequence[Msg]:
        """The messages so far, without the system text and the history of every conversation of the module."""
        return self._history

    def __call__(self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any) -> Reply:
        """Send the user's text, and return the answer.

        Args:
            input: The input, as in a call of the module; None if the history already awaits the answer, such as after
                tool results.
            response_format: A pydantic model or JSON schema for the answer.
            params: Other parameters of this call.

        Raises:
            ModuleError: The call failed; the history is unchanged.
        """
        return self._ask(input, self._runner, response_format, params)

    async def acall(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> Reply:
        """Async version of a call."""
        return await self._aask(input, self._runner, response_format, params)

    def stream(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> ReplyStream:
        """Return the answer of a call as a stream; the turn joins the history at its end."""
        return self._stream(input, self._runner, response_format, params)

    def astream(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> AsyncReplyStream:
        """Async version of :meth:`stream`."""
        return self._astream(input, self._runner, response_format, params)

    def run(
        self,
        input: object = None,
        tools: ToolsLike = None,
        *,
        max_rounds: int = 10,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> Reply:
        """Send the user's text, run the functions that the model calls, and return its answer.

        Calls of one answer run in parallel threads. A failing function doesn't end the run: the model gets its error as
        the result. All calls and results join the history.

        Args:
            input: The input, as in a call.
            tools: Python functions and other tools that the model may call; None for the tools of the chat.
            max_rounds: The maximum number of answers whose calls are run.
            response_format: A pydantic model or JSON schema for the answer.
            params: Other parameters of each call of the model.

        Returns:
            The first answer without calls, or with a call of a tool that is not a Python function.

        Raises:
            ModuleError: A call of the model failed, or it still calls tools after ``max_rounds``.
            ToolsError: A tool cannot be described, or is async.
            HistoryError: The output of a function is no text, no list of blocks and no JSON value.
        """
        call = CallOptions(input, None, tools, response_format, params)
        *_, reply = (step for step in self._steps(call, max_rounds, streams=False) if isinstance(step, str))
        return reply

    async def arun(
        self,
        input: object = None,
        tools: ToolsLike = None,
        *,
        max_rounds: int = 10,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> Reply:
        """Async version of :meth:`run`: async functions are awaited, others run in threads."""
        call = CallOptions(input, None, tools, response_format, params)
        *_, reply = [step async for step in self._asteps(call, max_rounds, streams=False) if isinstance(step, str)]
        return reply

    def steps(
        self,
        input: object = None,
        tools: ToolsLike = None,
        *,
        max_rounds: int = 10,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> Iterator[Step]:
        """Run as :meth:`run` does, and yield each step.

        Args:
            input: The input, as in a call.
            tools: Python functions and other tools that the model may call; None for the tools of the chat.
            max_rounds: The maximum number of answers whose calls are run.
            response_format: A pydantic model or JSON schema for the answer.
            params: Other parameters of each call of the model.

        Returns:
            The steps of each round: the pieces of the answer (:class:`Delta`), the answer (:class:`Reply`), and the
            results of its calls (:class:`ToolResultBlock`).
        """
        return self._steps(CallOptions(input, None, tools, response_format, params), max_rounds, streams=True)

    def asteps(
        self,
        input: object = None,
        tools: ToolsLike = None,
        *,
        max_rounds: int = 10,
        response_format: ResponseFormat | None = None,
        **params: Any,
    ) -> AsyncIterator[Step]:
        """Async version of :meth:`steps`."""
        return self._asteps(CallOptions(input, None, tools, response_format, params), max_rounds, streams=True)

    def add_result(self, call: ToolUseBlock, output: object) -> None:
        """Add the result of a tool call; ``chat()`` then continues the conversation.

        Args:
            call: The call, from ``reply.tool_calls``.
            output: Its output: text, a list of blocks, or a JSON value.

        Raises:
            HistoryError: The output has another type, or no such call awaits a result.
        """
        if not isinstance(cast("object", call), ToolUseBlock):
            raise HistoryError(f"the call is a {type(call).__name__}; give one of reply.tool_calls")
        waiting = OpenCalls(self._history)
        if call.id not in waiting:
            known = ", ".join(f"{call_id!r} ({name})" for call_id, name in waiting.items()) or "none"
            raise HistoryError(f"no call {call.id!r} ({call.name}) waits for a result; waiting are {known}")
        self._with_results([ToolResultBlock(call.id, call.name, output_of(output, call.name))])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a JSON file atomically.

        Args:
            path: The file.

        Raises:
            OSError: The file cannot be written.
        """
        saved = {"format": _FORMAT, "messages": [_dump_message(message) for message in self._history]}
        text = json.dumps(saved, ensure_ascii=False, indent=1)
        write_whole(Path(path), text.encode(), 0o600)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the history by the conversation in a file of :meth:`save`.

        Args:
            path: The file.

        Raises:
            HistoryError: The file contains no conversation.
            OSError: The file cannot be read.
        """
        name = os.fspath(path)
        try:
            saved: Any = json.loads(read_regular(path, _MOST))
            form, messages = saved["format"], saved["messages"]
            if form == _FORMAT:
                self._history = tuple(map(_load_message, messages))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise HistoryError(f"{name} is not a conversation saved by Chat.save: {error}") from error
        if form != _FORMAT:
            raise HistoryError(f"{name} is a conversation in the format {form!r}; this version reads {_FORMAT!r}")

    def _stream(
        self, input: object, runner: ToolRunner, response_format: ResponseFormat | None, params: Mapping[str, Any]
    ) -> ReplyStream:
        given = self._input_or_values(input)
        stream = self._asked.stream(given, self._history, runner.tools, response_format=response_format, **params)
        return stream.then(self._keeper(input))

    def _astream(
        self, input: object, runner: ToolRunner, response_format: ResponseFormat | None, params: Mapping[str, Any]
    ) -> AsyncReplyStream:
        given = self._input_or_values(input)
        stream = self._asked.astream(given, self._history, runner.tools, response_format=response_format, **params)
        return stream.then(self._keeper(input))

    def _steps(self, call: CallOptions, max_rounds: int, *, streams: bool) -> Iterator[Step]:
        runner, input = self._runner_of(call.tools), call.input
        for left in reversed(range(max_rounds + 1)):
            if streams:
                stream = self._stream(input, runner, call.response_format, call.params)
                yield from stream.deltas()
                reply = stream.reply
            else:
                reply = self._ask(input, runner, call.response_format, call.params)
            yield reply
            if not runner.can_run(reply.tool_calls):
                return
            _check_rounds(left, max_rounds, reply)
            yield from self._with_results(runner.run(reply.tool_calls))
            input = None

    async def _asteps(self, call: CallOptions, max_rounds: int, *, streams: bool) -> AsyncIterator[Step]:
        runner, input = self._runner_of(call.tools), call.input
        for left in reversed(range(max_rounds + 1)):
            if streams:
                async with self._astream(input, runner, call.response_format, call.params) as stream:
                    async for delta in stream.deltas():
                        yield delta
                reply = stream.reply
            else:
                reply = await self._aask(input, runner, call.response_format, call.params)
            yield reply
            if not runner.can_run(reply.tool_calls):
                return
            _check_rounds(left, max_rounds, reply)
            for result in self._with_results(await runner.arun(reply.tool_calls)):
                yield result
            input = None

    def _runner_of(self, tools: ToolsLike) -> ToolRunner:
        return self._runner if tools is None else ToolRunner.of(tools)

    def _ask(
        self, input: object, runner: ToolRunner, response_format: ResponseFormat | None, params: Mapping[str, Any]
    ) -> Reply:
        given = self._input_or_values(input)
        reply = self._asked(given, self._history, runner.tools, response_format=response_format, **params)
        self._keep(input, reply)
        return reply

    async def _aask(
        self, input: object, runner: ToolRunner, response_format: ResponseFormat | None, params: Mapping[str, Any]
    ) -> Reply:
        given = self._input_or_values(input)
        reply = await self._asked.acall(given, self._history, runner.tools, response_format=response_format, **params)
        self._keep(input, reply)
        return reply

    def _input_or_values(self, input: object) -> object:
        """Return the input of a call; without one, the values of the last turn."""
        return input if input is not None else self._values or None

    def _keeper(self, input: object) -> Callable[[Reply], None]:
        return lambda reply: self._keep(input, reply)

    def _keep(self, input: object, reply: Reply) -> None:
        self._history += reply.turn
        if is_mapping(input):
            user_only = {*self.module.prompter.made_of.instruction.user_only, INPUT}
            self._values = {name: value for name, value in input.items() if name not in user_only}

    def _with_results(self, results: Sequence[ToolResultBlock]) -> Sequence[ToolResultBlock]:
        self._history += tuple(message_of("", (result,), "tool") for result in results)
        return results


def _check_rounds(left: int, most: int, reply: Reply) -> None:
    """Raise an error if no round is left for the calls of an answer."""
    if not left:
        names = ", ".join(call.name for call in reply.tool_calls)
        raise ModuleError(
            f"the model still calls tools ({names}) after {most} rounds; give more as max_rounds=",
            kind="rounds",
            partial=reply,
        )


class Connection:
    """The connection of a module and those that share it; the first call opens it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.sender: Sender | None = None


def check_settings(settings: ClientSettings, concurrency: int | None, error: type[ModuleError]) -> ClientSettings:
    """Check the settings of clients, and return them."""
    if not _is_positive(settings.timeout):
        raise error(f"timeout is in seconds, and more than 0, not {settings.timeout!r}")
    if "api_key" in settings.options:  # reprs and logs would show it
        raise error("a key is given as api_key=, not among the options")
    _check_number("retries", settings.retries, 0, error)
    _check_number("concurrency", 1 if concurrency is None else concurrency, 1, error)
    _check_number("max_answer_bytes", settings.max_answer_bytes, 1, error)
    return settings


def _check_number(name: str, value: object, least: int, error: type[ModuleError]) -> None:
    if not isinstance(value, int):
        raise error(f"{name} is a whole number, not {value!r}")
    if value < least:
        raise error(f"{name} is {least} or more, not {value}")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def check_params(params: Mapping[str, Any], payload: Mapping[str, Any], error: type[ModuleError]) -> Mapping[str, Any]:
    """Check that no parameter replaces the prompt or the model, and return the parameters."""
    for name in params:
        if name in ("model", "stream") or name in payload:
            raise error(
                f"{name!r} is not a parameter of a call: the prompter renders {' and '.join(payload)}, the module has "
                "the model, and module.stream(...) streams"
            )
    return params


def _prompter_of(prompter: PrompterLike) -> Prompter:
    """Return a prompter.

    Raises:
        TemplateError: The argument is no prompter and no instruction.
    """
    if isinstance(prompter, Prompter):
        return prompter
    if isinstance(own := getattr(prompter, "prompter", None), Prompter):
        return own
    if prompter is None:
        return EmptyPrompter()
    if isinstance(prompter, str | Mapping):
        return ChatPrompter(prompter)
    raise TemplateError(
        f"a prompter is a Prompter, a prompt file, an instruction, or None, not a {type(prompter).__name__}"
    )


def _dump_message(message: Msg) -> Mapping[str, Any]:
    """Return a message as JSON values, for :func:`_load_message`."""
    content = message.content if isinstance(message.content, str) else [asdict(block) for block in message.content]
    return {
        "name": message.name,
        "role": message.role,
        "content": content,
        **({} if message.url is None else {"url": message.url}),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
        **({"usage": dict(message.usage)} if message.usage else {}),
        **({"native": message.native._asdict()} if message.native else {}),
    }


def _load_message(saved: dict[str, Any]) -> Msg:
    """Return the message of :func:`_dump_message`."""
    fields = {**saved}
    native = fields.pop("native", None)
    message = Msg(**fields)
    own = None if native is None else Native(str(native["provider"]), checked(native["data"], "native", HistoryError))
    speaker = "" if message.name == message.role else message.name
    return message_of(speaker, message.content, message.role, message.url, message.metadata, message.usage, own)
