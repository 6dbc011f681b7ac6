"""Models with an attached prompter, and conversations with these models."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, cast

from lazyprompt._base.files import read_regular, write_whole
from lazyprompt._base.json import is_mapping, is_sequence
from lazyprompt.budget.budget import BudgetLike, read_budget
from lazyprompt.errors import HistoryError, ModuleError, TemplateError
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.history import EMPTY_HISTORY, History, HistoryLike, PastLike, messages_from
from lazyprompt.messages.msg import Msg, ToolResultBlock, ToolUseBlock, message_of
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.modules._checks import check_values
from lazyprompt.modules._reading import AnswerSchema, AsyncReplyStream, Exchange, ReplyStream, ResponseFormat
from lazyprompt.modules.saved_chats import dump_chat, load_chat
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
    from lazyprompt.modules.clients._base import OfficialClient

    class HasPrompter(Protocol):
        """An object that has a prompter, such as a prompt loaded from a file."""

        @property
        def prompter(self) -> Prompter:
            """The prompter that renders the prompt."""
            ...

    PrompterLike = Prompter | HasPrompter | str | Mapping[str, str] | None

Step: TypeAlias = "Delta | Reply | ToolResultBlock"
"""A step of a conversation with tools: a delta of a reply, a complete reply, or a tool result."""

# The maximum size of a saved conversation in bytes.
_MOST = 1_073_741_824


class CallOptions(NamedTuple):
    """The arguments of a model call.

    Attributes:
        input: The input, as in :meth:`lazyprompt.Prompter.generate_prompt`.
        history: The earlier messages.
        tools: The tools that the model may call.
        response_format: A pydantic model or JSON schema for structured output.
        params: Additional request parameters for this call, such as ``temperature``.
    """

    input: object
    history: HistoryLike | History | None
    tools: ToolsLike
    response_format: ResponseFormat | None
    params: Mapping[str, Any]


class ChatModule(ABC):
    """A model with a prompter attached.

    Args:
        params: Default parameters for every call: ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a string or a
            list) and ``seed``, or parameters of the official client.
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
        """Return the state for a copy or pickle, without the connection. A pickle also excludes the API key."""
        return {name: value for name, value in vars(self).items() if name not in self._unshared}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Prepare a connection.

        This method is also called for each copy of the module, so copies don't share connections.
        """

    def close(self) -> None:
        """Close the connections used by threads; later calls open new ones.

        Calls in progress may time out.
        """
        if (sender := self._connection.sender) is not None:
            sender.client.close()

    async def aclose(self) -> None:
        """Close the connections used by the running event loop."""
        if (sender := self._connection.sender) is not None:
            await sender.client.aclose()

    def prompt(self, prompter: PrompterLike = None, history: HistoryLike | None = None) -> Self:
        """Attach a prompter to this module. Many modules can share one prompter, because prompters are never modified.

        :meth:`share` returns another module instead of changing this one.

        Args:
            prompter: A prompter, a prompt file or an instruction. The outputs declared in a prompt file become the
                default ``response_format``; its model and options are not used. An instruction (text or
                ``{"system": ..., "user": ...}``) is converted to a :class:`~lazyprompt.ChatPrompter`, with its default
                system text. None attaches an :class:`~lazyprompt.EmptyPrompter`, which sends the caller's text
                unchanged, including control sequences.
            history: Messages that begin every conversation.

        Returns:
            The module itself.

        Raises:
            TemplateError: The prompter has an unsupported type, or the instruction is invalid.
            HistoryError: The history has an invalid format.
        """
        # Assign two attributes in one statement, so that an error in either value leaves the module unchanged.
        self._prompter, self._history = _prompter_of(prompter), History.of(history)
        return self

    def share(self, prompt: PrompterLike = None, history: HistoryLike | None = None) -> Self:
        """Return a new module that shares this module's client or running engine, but has its own prompter.

        This module and the new module share connections and limits, and either of them can start and stop the engine.

        Args:
            prompt: A prompter, as in :meth:`prompt`; None keeps this module's prompter.
            history: Messages that begin every conversation with the returned module. If both arguments are None, the
                returned module keeps this module's history.

        Returns:
            The new module.

        Raises:
            TemplateError: The prompter has an unsupported type, or the instruction is invalid.
            HistoryError: The history has an invalid format.
        """
        shared = object.__new__(type(self))
        # Don't use copy.copy, because it would create a new connection.
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
        """Call the model.

        Args:
            input: The input, as in :meth:`lazyprompt.Prompter.generate_prompt`.
            history: The earlier messages.
            tools: The tools that the model may call. Functions are described to the model but never run. The reply
                contains the model's tool calls.
            response_format: A pydantic model or JSON schema for structured output. The parsed output is in
                ``reply.parsed``.
            params: Additional request parameters for this call, such as ``temperature``.

        Returns:
            The model's reply.

        Raises:
            ModuleError: The call failed. The exception's ``kind`` is the kind of failure, and its ``partial`` is the
                received part of the reply.
            EngineError: The call to a local engine failed.
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
        """Async version of :meth:`__call__`; cancelling the task closes the connection."""
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
        """Call the model and return a streamed reply.

        Args:
            input: The input, as in :meth:`lazyprompt.Prompter.generate_prompt`.
            history: The earlier messages.
            tools: The tools that the model may call.
            response_format: A pydantic model or JSON schema for structured output.
            params: Additional request parameters for this call, such as ``temperature``.

        Returns:
            An iterator over pieces of text. The request is sent when the iteration starts. At the end, the iterator's
            ``reply`` attribute contains the complete reply.
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
        """Async version of :meth:`stream`, for ``async for``. The prompt is rendered when the iteration starts."""
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
        """Return the payload for a call with these arguments, without sending it.

        Args:
            input: The input, as in :meth:`lazyprompt.Prompter.generate_prompt`.
            history: The earlier messages.
            tools: The tools that the model may call.
            response_format: A pydantic model or JSON schema for structured output.
            params: Additional request parameters for this call, such as ``temperature``.

        Returns:
            The arguments for the official client, with the formatter's report. ``payload.report.raise_for_losses()``
            raises an error if content was lost.
        """
        request = self._exchange(CallOptions(input, history, tools, response_format, params)).request
        made = request.payload
        own = made if isinstance(made, Payload) else Payload({})
        sent = {"model": request.model, **made, **request.params}
        return Payload(sent, own.report, own.trim, own.neutralised)

    def continued(self) -> ChatModule:
        """Return a module for one conversation; a subclass may return a module that reuses cached token ids."""
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
            values: Values for the prompter's slots, as in :meth:`lazyprompt.Prompter.partial`.

        Raises:
            SlotError: A value has no matching slot in the prompter.
        """
        module = self if not values else self.share(self._prompter.partial(**values), self._history.messages)
        return Chat(module, history, tools)

    @abstractmethod
    def _sender(self) -> Sender:
        """Return the request sender, which the first call creates."""

    @abstractmethod
    def _exchange(self, call: CallOptions) -> Exchange:
        """Return the request for a call, and the reader for its response."""

    def _fill(self, prompter: Prompter, call: CallOptions) -> Prompt:
        """Return the prompt for a call."""
        return prompter.fill(call.input, cast("HistoryLike | None", self._past(call.history)), call.tools)

    def _past(self, history: PastLike) -> PastLike:
        """Return the module's history followed by the history passed to the call."""
        return self._history + History.of(history) if self._history else history

    def _common(self, params: Mapping[str, Any], stops: Sequence[str] = ()) -> dict[str, Any]:
        """Merge a call's parameters into the module's parameters, and convert ``stop`` to a list."""
        given = {**self._params, **params}
        stop: object = given.pop("stop", None) or ()
        own = [stop] if isinstance(stop, str) else stop
        texts = [each for each in own if isinstance(each, str)] if is_sequence(own) else []
        if not is_sequence(own) or len(texts) < len(own):
            raise ModuleError(f"stop must be a string or a list of strings, not {stop!r}")
        check_values(params, self._client.package[0])
        all_stops = [*texts, *stops]
        return {
            **{name: value for name, value in given.items() if value is not None},
            **({"stop": list(dict.fromkeys(all_stops))} if all_stops else {}),
        }

    def _asked(self, call: CallOptions) -> tuple[Prompter, AnswerSchema | None, dict[str, Any]]:
        """Return the prompter for a call, the schema for its output, and the parameters that request this schema."""
        form = self._prompter.response_format if call.response_format is None else call.response_format
        structure = None if form is None else AnswerSchema.of(form)
        asked = None if structure is None else self._client.output_params(structure.schema, structure.name)
        prompter = self._prompter
        if structure is not None and asked is None:
            prompter = prompter.with_added_system(structure.instruction)
        return self._with_budget(prompter), structure, asked or {}

    def _with_budget(self, prompter: Prompter) -> Prompter:
        return prompter if self._budget is None else prompter.with_budget(self._budget)


class Chat:
    """A conversation that records each turn in its history.

    A failed call leaves the history unchanged. The budget of the module or its prompter trims the payload, never the
    history. Conversations are not thread-safe.

    Args:
        module: The model.
        history: The earlier messages.
        tools: The tools that the model may call.

    Raises:
        HistoryError: The history has an invalid format.
        ToolsError: The schema of a tool can't be generated.
    """

    def __init__(self, module: ChatModule, history: HistoryLike | None = None, tools: ToolsLike = None) -> None:
        self.module = module
        self._asked = module.continued()
        self._runner = ToolRunner.of(tools)
        self._history: tuple[Msg, ...] = tuple(messages_from(history))
        # The last turn's values for slots outside the user's text, which a call without input reuses.
        self._values: Mapping[str, object] = {}

    @property
    def history(self) -> Sequence[Msg]:
        """The messages so far, without the system text and the module's own history."""
        return self._history

    def __call__(self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any) -> Reply:
        """Send the user's text and return the model's reply.

        Args:
            input: The input, as in :meth:`ChatModule.__call__`. Pass None if the history already awaits a reply, for
                example after tool results.
            response_format: A pydantic model or JSON schema for structured output.
            params: Additional request parameters for this call, such as ``temperature``.

        Raises:
            ModuleError: The call failed. A failed call leaves the history unchanged.
        """
        return self._ask(input, self._runner, response_format, params)

    async def acall(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> Reply:
        """Async version of :meth:`__call__`."""
        return await self._aask(input, self._runner, response_format, params)

    def stream(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> ReplyStream:
        """Call the model and return a streamed reply. The turn is added to the history when the stream ends."""
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
        """Send the user's text, run the functions that the model calls, and return its final reply.

        The tool calls in one reply run in parallel threads. A failing function doesn't end the run, because its error
        is sent to the model as the tool result. All tool calls and results are added to the history.

        Args:
            input: The input, as in :meth:`ChatModule.__call__`. Without the user's text, the run first runs the last
                reply's calls that have no result, such as those after the last round of an earlier run.
            tools: Python functions and other tools that the model may call; None for the chat's own tools.
            max_rounds: The maximum number of replies whose tool calls are run.
            response_format: A pydantic model or JSON schema for structured output.
            params: Additional request parameters for each model call, such as ``temperature``.

        Returns:
            The first reply that calls no tools, or that calls a tool that is not a Python function.

        Raises:
            ModuleError: A model call failed, or the model still calls tools after ``max_rounds`` rounds.
            ToolsError: The schema of a tool can't be generated, or a tool is an async function.
            HistoryError: A function's output is neither text, a list of blocks nor a JSON value.
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
        """Async version of :meth:`run`. Async functions are awaited, and other functions run in threads."""
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
        """Send the user's text, run the functions that the model calls, and yield each step.

        Args:
            input: The input, as in :meth:`ChatModule.__call__`.
            tools: Python functions and other tools that the model may call; None for the chat's own tools.
            max_rounds: The maximum number of replies whose tool calls are run.
            response_format: A pydantic model or JSON schema for structured output.
            params: Additional request parameters for each model call, such as ``temperature``.

        Returns:
            An iterator over deltas, replies and tool results. In each round, the deltas of a reply (:class:`Delta`) are
            followed by the complete reply (:class:`Reply`) and the results of its tool calls
            (:class:`ToolResultBlock`). A call is not run if the caller adds its result after the reply is yielded.
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

    def add_result(self, call: ToolUseBlock, output: object, *, is_error: bool = False) -> None:
        """Add the result of a tool call. When every tool call has a result, ``chat()`` continues the conversation.

        Args:
            call: The tool call, from ``reply.tool_calls``.
            output: The tool's output: text, a list of blocks, or a JSON value.
            is_error: True if the output is an error message, for example because the call was refused.

        Raises:
            HistoryError: The output has an unsupported type, or the tool call doesn't await a result.
        """
        if not isinstance(cast("object", call), ToolUseBlock):
            raise HistoryError(f"call must be a ToolUseBlock from reply.tool_calls, not {type(call).__name__}")
        waiting = OpenCalls(self._history)
        if call.id not in waiting:
            known = ", ".join(f"{call_id!r} ({name})" for call_id, name in waiting.items()) or "none"
            raise HistoryError(f"tool call {call.id!r} ({call.name}) does not await a result; pending calls: {known}")
        self._with_results([ToolResultBlock(call.id, call.name, output_of(output, call.name), is_error=is_error)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a JSON file atomically.

        Args:
            path: The file.

        Raises:
            OSError: The file cannot be written.
        """
        write_whole(Path(path), dump_chat(self._history), 0o600)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the history with a conversation that :meth:`save` wrote.

        Args:
            path: The file.

        Raises:
            HistoryError: The file is not a saved conversation, or has an unsupported format.
            OSError: The file cannot be read.
        """
        self._history = load_chat(read_regular(path, _MOST), os.fspath(path))

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
        if self._continues(input) and runner.can_run(pending := self._pending_calls()):
            yield from self._with_results(runner.run(pending))
        for left in reversed(range(max_rounds + 1)):
            if streams:
                stream = self._stream(input, runner, call.response_format, call.params)
                yield from stream.deltas()
                reply = stream.reply
            else:
                reply = self._ask(input, runner, call.response_format, call.params)
            yield reply
            # The caller may have added results for some calls, for example to refuse these calls.
            if not reply.tool_calls or not runner.can_run(pending := self._pending_calls()):
                return
            _check_rounds(left, max_rounds, reply)
            yield from self._with_results(runner.run(pending))
            input = None

    async def _asteps(self, call: CallOptions, max_rounds: int, *, streams: bool) -> AsyncIterator[Step]:
        runner, input = self._runner_of(call.tools), call.input
        if self._continues(input) and runner.can_run(pending := self._pending_calls()):
            for result in self._with_results(await runner.arun(pending)):
                yield result
        for left in reversed(range(max_rounds + 1)):
            if streams:
                async with self._astream(input, runner, call.response_format, call.params) as stream:
                    async for delta in stream.deltas():
                        yield delta
                reply = stream.reply
            else:
                reply = await self._aask(input, runner, call.response_format, call.params)
            yield reply
            # The caller may have added results for some calls, for example to refuse these calls.
            if not reply.tool_calls or not runner.can_run(pending := self._pending_calls()):
                return
            _check_rounds(left, max_rounds, reply)
            for result in self._with_results(await runner.arun(pending)):
                yield result
            input = None

    def _continues(self, input: object) -> bool:
        """Return True if an input contains no user text, so that the model answers the history."""
        names = self.module.prompter.made_of.instruction.input_form.slots
        return input is None or (is_mapping(input) and input.keys() <= {*names} - self._user_names())

    def _pending_calls(self) -> list[ToolUseBlock]:
        """Return the calls in the last reply that have no result."""
        at = max((at for at, message in enumerate(self._history) if message.role == "assistant"), default=0)
        waiting = OpenCalls(self._history[at:])
        blocks = (block for message in self._history[at:] for block in message.blocks)
        return [block for block in blocks if isinstance(block, ToolUseBlock) and block.id in waiting]

    def _user_names(self) -> set[str]:
        """Return the names in an input that are part of the user's text."""
        return {*self.module.prompter.made_of.instruction.user_only, INPUT}

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
        """Return the input of a call, or the last turn's slot values if the input is None."""
        return input if input is not None else self._values or None

    def _keeper(self, input: object) -> Callable[[Reply], None]:
        return lambda reply: self._keep(input, reply)

    def _keep(self, input: object, reply: Reply) -> None:
        self._history += reply.turn
        if is_mapping(input):
            users = self._user_names()
            self._values = {name: value for name, value in input.items() if name not in users}

    def _with_results(self, results: Sequence[ToolResultBlock]) -> Sequence[ToolResultBlock]:
        self._history += tuple(message_of("", (result,), "tool") for result in results)
        return results


def _check_rounds(left: int, most: int, reply: Reply) -> None:
    """Raise an error if no round remains for the tool calls in a reply."""
    if not left:
        names = ", ".join(call.name for call in reply.tool_calls)
        raise ModuleError(
            f"the model still calls tools ({names}) after {most} rounds; increase max_rounds=, or run again without an "
            "input to continue",
            kind="rounds",
            partial=reply,
        )


class Connection:
    """A connection that modules can share. The first call opens the connection."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.sender: Sender | None = None


def _prompter_of(prompter: PrompterLike) -> Prompter:
    """Convert a prompter, prompt file or instruction to a prompter.

    Raises:
        TemplateError: The argument has an unsupported type.
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
        f"prompter must be a Prompter, a prompt file, an instruction or None, not {type(prompter).__name__}"
    )
