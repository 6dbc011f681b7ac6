"""Models to ask, with a prompter attached, and conversations with them that keep their history."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, cast, get_args

from lazyprompt._base.files import read_regular, write_whole
from lazyprompt._base.json import checked
from lazyprompt.budget.budget import BudgetLike, read_budget
from lazyprompt.errors import HistoryError, ModuleError, TemplateError
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.history import EMPTY_HISTORY, History, HistoryLike, messages_from
from lazyprompt.messages.msg import Block, Msg, ToolResultBlock, ToolUseBlock, message_of
from lazyprompt.messages.native import Native
from lazyprompt.messages.tools import ToolSet, ToolsLike
from lazyprompt.modules._reading import AsyncReplyStream, Exchange, ReplyStream, ResponseFormat, Structure
from lazyprompt.prompters.kinds import ChatPrompter, EmptyPrompter
from lazyprompt.prompters.prompter import Prompter

if TYPE_CHECKING:
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.modules._sending import Sender
    from lazyprompt.modules.clients._base import OfficialClient, Settings

    class HasPrompter(Protocol):
        """A prompt in a file."""

        @property
        def prompter(self) -> Prompter:
            """The prompt as a prompter."""
            ...

    PrompterLike = Prompter | HasPrompter | str | Mapping[str, str] | None

_FORMAT = "lazyprompt.chat/1"
# The largest saved conversation that is read.
_MOST = 1_073_741_824
_BLOCKS = get_args(Block)


class Call(NamedTuple):
    """The arguments of a call.

    Attributes:
        input: As of :meth:`lazyprompt.Prompter.generate_prompt` (so with history and tools).
        history: The turns before.
        tools: The tools that the model may call.
        response_format: The form of the answer.
        params: Further parameters of this call.
    """

    input: object
    history: HistoryLike | History | None
    tools: ToolsLike
    response_format: ResponseFormat | None
    params: Mapping[str, Any]


class ChatModule(ABC):
    """A model that can be asked, with a prompter attached.

    Args:
        params: Parameters of every call: ``temperature``, ``top_p``, ``max_tokens``, ``stop`` (a text or a list) and
            ``seed`` under these names, others under the client's own.
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
        """Return the state of a copy: it has a connection of its own, and a pickle holds no key."""
        return {name: value for name, value in vars(self).items() if name not in self._unshared}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Prepare the connection, which a copy does not share."""

    def close(self) -> None:
        """Close the connections of threads; the module can be used again.

        Calls that are under way may run into their time-out.
        """
        if (sender := self._connection.sender) is not None:
            sender.client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if (sender := self._connection.sender) is not None:
            await sender.client.aclose()

    def prompt(self, prompter: PrompterLike = None, history: HistoryLike | None = None) -> Self:
        """Attach a prompter. It stays as it is, so one serves many modules at once.

        Args:
            prompter: A prompter; a prompt file, whose outputs are the form of answers; an instruction as text or as
                ``{"system": ..., "user": ...}``, for a :class:`~lazyprompt.ChatPrompter`; None for an
                :class:`~lazyprompt.EmptyPrompter`, which sends the caller's text as it is, control sequences too.
            history: The history that every conversation begins with.

        Returns:
            The module itself.

        Raises:
            TemplateError: It is no prompter, or the instruction is wrong.
            HistoryError: The history has no accepted shape.
        """
        # Both or none: what is wrong leaves the module as it was.
        self._prompter, self._history = _prompter_of(prompter), History.of(history)
        return self

    def share(self, prompt: PrompterLike = None, history: HistoryLike | None = None) -> Self:
        """Return a module with its own prompter on the same client or running engine.

        Both modules use the same connections and limits; the engine is started and stopped by either.

        Args:
            prompt: As of :meth:`prompt`; None keeps this module's prompter.
            history: The history that every conversation of the new module begins with. None keeps this module's if the
                prompter is kept.

        Returns:
            The new module. This one does not change.

        Raises:
            TemplateError: As of :meth:`prompt`.
            HistoryError: As of :meth:`prompt`.
        """
        shared = object.__new__(type(self))
        # Not copy.copy: a copy has connections of its own.
        vars(shared).update(vars(self))
        if prompt is not None:
            return shared.prompt(prompt, history)
        return shared if history is None else shared.prompt(self._prompter, history)

    @property
    def prompter(self) -> Prompter:
        """The prompter that is attached."""
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
            input: As of :meth:`lazyprompt.Prompter.generate_prompt` (so with history and tools). None of it changes.
            history: The turns before.
            tools: The tools that the model may call: functions are described, never run; the calls are in the reply.
            response_format: A pydantic model, or a JSON schema, that the answer is to be of: ``reply.parsed``.
            params: Further parameters of this call.

        Returns:
            The answer.

        Raises:
            ModuleError: There is none: what went wrong is its ``kind``, what came is its ``partial``.
            EngineError: The same, of a local engine.
            LazyPromptError: The prompt cannot be made.
        """
        if not self._streams:
            return self._sender().send(self._exchange(Call(input, history, tools, response_format, params)))
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
            call = Call(input, history, tools, response_format, params)
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
            input: As of a call (so with all others).
            history: The turns before.
            tools: The tools that the model may call.
            response_format: The form of the answer.
            params: Further parameters of this call.

        Returns:
            The pieces of text to iterate over; ``reply`` is the whole answer then. Nothing is sent before the first
            piece is asked for.
        """
        exchange = self._exchange(Call(input, history, tools, response_format, params))
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
        """Async version of :meth:`stream`, for ``async for``; the prompt is made then, too."""
        call = Call(input, history, tools, response_format, params)
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
            input: As of a call (so with all others).
            history: The turns before.
            tools: The tools that the model may call.
            response_format: The form of the answer.
            params: Further parameters of this call.

        Returns:
            The arguments of the client's call, with the formatter's report.
        """
        request = self._exchange(Call(input, history, tools, response_format, params)).request
        made = request.payload
        own = made if isinstance(made, Payload) else Payload({})
        sent = {"model": request.model, **made, **request.params}
        return Payload(sent, own.report, own.trim, own.neutralised)

    def continued(self) -> ChatModule:
        """Return the model for one conversation, which may go on with the state that its engine keeps of it."""
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
            history: The turns before.
            tools: The tools that the model may call in all of it.
            values: Values for slots of the prompter in all of it, as of :meth:`lazyprompt.Prompter.partial`.

        Raises:
            SlotError: A value is for no slot.
        """
        module = self if not values else self.share(self._prompter.partial(**values), self._history.messages)
        return Chat(module, history, tools)

    @abstractmethod
    def _sender(self) -> Sender:
        """Return the sender of requests, made when it is first needed."""

    @abstractmethod
    def _exchange(self, call: Call) -> Exchange:
        """Return the request of a call, and the reader of its answer."""

    def _filled(self, prompter: Prompter, call: Call) -> Prompt:
        """Return the prompt of a call."""
        return prompter.fill(call.input, cast("HistoryLike | None", self._past(call.history)), call.tools)

    def _past(self, history: HistoryLike | History | None) -> Sequence[Any] | None:
        """Return the history of every conversation, and behind it that of the call."""
        if not self._history:
            return cast("Sequence[Any] | None", history)
        return (self._history + History.of(history)).messages

    def _common(self, params: Mapping[str, Any], stops: Sequence[str] = ()) -> dict[str, Any]:
        """Return the parameters of a call over those of every call, with ``stop`` as a list."""
        given = {**self._params, **params}
        stop: object = given.pop("stop", None) or ()
        own = [stop] if isinstance(stop, str) else stop
        if not isinstance(own, list | tuple) or not all(isinstance(each, str) for each in cast("list[object]", own)):
            raise ModuleError(f"stop is a text or a list of texts, not {stop!r}")
        all_stops = [*cast("list[str]", own), *stops]
        return {
            **{name: value for name, value in given.items() if value is not None},
            **({"stop": list(dict.fromkeys(all_stops))} if all_stops else {}),
        }

    def _asked(self, call: Call) -> tuple[Prompter, Structure | None, dict[str, Any]]:
        """Return the prompter of a call, the form that is asked for, and the parameters that ask the client for it."""
        form = self._prompter.response_format if call.response_format is None else call.response_format
        structure = None if form is None else Structure.of(form)
        asked = None if structure is None else self._client.structured(structure.schema, structure.name)
        prompter = self._prompter
        if structure is not None and asked is None:
            prompter = prompter.with_added_system(structure.instruction)
        return self._budgeted(prompter), structure, asked or {}

    def _budgeted(self, prompter: Prompter) -> Prompter:
        return prompter if self._budget is None else prompter.with_budget(self._budget)


class Chat:
    """A conversation: each call is a turn, and the history is kept.

    A call that fails leaves the history as it was. A budget of the module or its prompter trims the payload, never the
    history. Not to be used by several threads at once.

    Args:
        module: The model.
        history: The turns before.
        tools: The tools that the model may call in all of the conversation.

    Raises:
        HistoryError: The history has no accepted shape.
        ToolsError: A tool cannot be described.
    """

    def __init__(self, module: ChatModule, history: HistoryLike | None = None, tools: ToolsLike = None) -> None:
        self.module = module
        self._asked = module.continued()
        self._tools = None if tools is None else ToolSet.of(tools)
        self._history: tuple[Msg, ...] = tuple(messages_from(history))

    @property
    def history(self) -> Sequence[Msg]:
        """The messages so far, without the system text and the history of every conversation of the module."""
        return self._history

    def __call__(self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any) -> Reply:
        """Send the user's text, and return the answer.

        Args:
            input: As of a call of the module; nothing where the history waits for an answer, as behind results.
            response_format: The form of the answer.
            params: Further parameters of this call.

        Raises:
            ModuleError: There is no answer; the history is as before.
        """
        reply = self._asked(input, self._history, self._tools, response_format=response_format, **params)
        self._keep(reply)
        return reply

    async def acall(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> Reply:
        """Async version of a call."""
        reply = await self._asked.acall(input, self._history, self._tools, response_format=response_format, **params)
        self._keep(reply)
        return reply

    def stream(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> ReplyStream:
        """Return the answer of a call as a stream; the turn is kept when it is whole."""
        stream = self._asked.stream(input, self._history, self._tools, response_format=response_format, **params)
        return stream.then(self._keep)

    def astream(
        self, input: object = None, *, response_format: ResponseFormat | None = None, **params: Any
    ) -> AsyncReplyStream:
        """Async version of :meth:`stream`."""
        stream = self._asked.astream(input, self._history, self._tools, response_format=response_format, **params)
        return stream.then(self._keep)

    def add_result(self, call: ToolUseBlock, output: object) -> None:
        """Add the result of a tool that the model called; ``chat()`` lets the model go on.

        Args:
            call: The call, out of ``reply.tool_calls``.
            output: Its output: text, a list of blocks, or a JSON value.

        Raises:
            HistoryError: It is none of these.
        """
        result = ToolResultBlock(call.id, call.name, _output(output, call.name))
        self._history += (message_of("", (result,), "tool"),)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a JSON file, all of it or nothing.

        Args:
            path: The file.

        Raises:
            OSError: It cannot be written.
        """
        saved = {"format": _FORMAT, "messages": [_written(message) for message in self._history]}
        text = json.dumps(saved, ensure_ascii=False, indent=1)
        write_whole(Path(path), text.encode(), 0o600)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on with the conversation of a file that :meth:`save` wrote.

        Args:
            path: The file.

        Raises:
            HistoryError: It holds no conversation.
            OSError: It cannot be read.
        """
        name = os.fspath(path)
        try:
            saved: Any = json.loads(read_regular(path, _MOST))
            form, messages = saved["format"], saved["messages"]
            if form == _FORMAT:
                self._history = tuple(map(_read, messages))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise HistoryError(f"{name} holds no conversation that Chat.save wrote: {error}") from error
        if form != _FORMAT:
            raise HistoryError(f"{name} holds a conversation of the form {form!r}; this version reads {_FORMAT!r}")

    def _keep(self, reply: Reply) -> None:
        self._history += reply.turn


class Connection:
    """The connection of a module, made by the first call and shared by modules."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.sender: Sender | None = None


def check_settings(settings: Settings, concurrency: int | None, error: type[ModuleError]) -> Settings:
    """Return the settings of clients, if clients can be made with them."""
    timeout = cast("object", settings.timeout)
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise error(f"timeout is in seconds, and more than 0, not {timeout!r}")
    if "api_key" in settings.options:  # where it would show
        raise error("a key is given as api_key=, not among the options")
    most = 1 if concurrency is None else concurrency
    for name, value, least in (
        ("retries", settings.retries, 0),
        ("concurrency", most, 1),
        ("max_answer_bytes", settings.max_answer_bytes, 1),
    ):
        given = cast("object", value)
        if not isinstance(given, int):
            raise error(f"{name} is a whole number, not {given!r}")
        if given < least:
            raise error(f"{name} is {least} or more, not {given}")
    return settings


def check_params(params: Mapping[str, Any], payload: Mapping[str, Any], error: type[ModuleError]) -> Mapping[str, Any]:
    """Refuse parameters that would put something else in the place of what the prompter made, or of the model."""
    for name in params:
        if name in ("model", "stream") or name in payload:
            raise error(
                f"{name!r} is no parameter of a call: {' and '.join(payload)} are what the prompter makes, the model "
                "is the module's, and module.stream(...) streams"
            )
    return params


def _prompter_of(prompter: PrompterLike) -> Prompter:
    """Return a prompter.

    Raises:
        TemplateError: It is none, and no instruction.
    """
    given = cast("object", prompter)
    if isinstance(given, Prompter):
        return given
    if isinstance(own := getattr(given, "prompter", None), Prompter):
        return own
    if given is None:
        return EmptyPrompter()
    if isinstance(given, str | Mapping):
        return ChatPrompter(cast("str", given))
    raise TemplateError(
        f"a prompter is a Prompter, a prompt file, an instruction, or None, not a {type(given).__name__}"
    )


def _written(message: Msg) -> Mapping[str, Any]:
    """Return a message as JSON values, for :func:`_read`."""
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


def _read(saved: dict[str, Any]) -> Msg:
    """Return the message of :func:`_written`."""
    fields = {**saved}
    native = fields.pop("native", None)
    message = Msg(**fields)
    own = None if native is None else Native(str(native["provider"]), checked(native["data"], "native", HistoryError))
    speaker = "" if message.name == message.role else message.name
    return message_of(speaker, message.content, message.role, message.url, message.metadata, message.usage, own)


def _output(output: object, name: str) -> str | list[Block]:
    """Return the output of a tool as the content of a result."""
    if isinstance(output, str):
        return output
    if isinstance(output, list | tuple):
        items = cast("Sequence[object]", output)
        if items and all(isinstance(each, _BLOCKS) for each in items):
            return [*cast("Sequence[Block]", items)]
    try:
        return json.dumps(output, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"the output of tool {name!r} is no text, no blocks and no JSON value: {error}") from error
