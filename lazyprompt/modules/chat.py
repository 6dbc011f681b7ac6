"""A conversation with a model, which keeps what was said."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from lazyprompt._base.files import read_regular, write_whole
from lazyprompt.errors import HistoryError
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import Block, Msg, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.tools import ToolSet
from lazyprompt.modules._base import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules._reading import AsyncReplyStream, ReplyStream, ResponseFormat

_FORMAT = "lazyprompt.chat/1"
# The largest saved conversation that is read.
_MOST = 1_073_741_824
_BLOCKS = get_args(Block)


class Chat:
    """A conversation: each call is a turn, and the history is kept.

    What fails leaves the history as it was. A budget of the module or its prompter trims what is sent; what was said
    stays here. Not to be used by several threads at once.

    Args:
        module: The model.
        history: What was said before.
        tools: What the model may call in all of the conversation.

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
        """What was said, without the system text and what every conversation of the module begins with."""
        return self._history

    def __call__(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> Reply:
        """Say something, and get the answer.

        Args:
            input: As of a call of the module; nothing where the history waits for an answer, as behind results.
            response_format: The form that the answer is to be of.
            params: Further parameters of this call.

        Raises:
            ModuleError: There is no answer; the history is as before.
        """
        reply = self._asked(input, self._history, self._tools, response_format=response_format, **params)
        self._keep(reply)
        return reply

    async def acall(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> Reply:
        """The same as a call, in an event loop."""
        reply = await self._asked.acall(input, self._history, self._tools, response_format=response_format, **params)
        self._keep(reply)
        return reply

    def stream(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> ReplyStream:
        """The same as a call, with the answer as it is said; the turn is kept when it is whole."""
        stream = self._asked.stream(input, self._history, self._tools, response_format=response_format, **params)
        return stream.then(self._keep)

    def astream(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> AsyncReplyStream:
        """The same as :meth:`stream`, in an event loop."""
        stream = self._asked.astream(input, self._history, self._tools, response_format=response_format, **params)
        return stream.then(self._keep)

    def add_result(self, call: ToolUseBlock, output: object) -> None:
        """Tell what a tool that the model called gave back; ``chat()`` lets the model go on.

        Args:
            call: The call, out of ``reply.tool_calls``.
            output: What it gave: text, a list of blocks, or a JSON value.

        Raises:
            HistoryError: It is none of these.
        """
        self._history += (Msg("tool", [ToolResultBlock(call.id, call.name, _output(output, call.name))], "tool"),)

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
                self._history = tuple(Msg(**message) for message in messages)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise HistoryError(f"{name} holds no conversation that Chat.save wrote: {error}") from error
        if form != _FORMAT:
            raise HistoryError(f"{name} holds a conversation of the form {form!r}; this version reads {_FORMAT!r}")

    def _keep(self, reply: Reply) -> None:
        """Keep a turn, now that its answer is there."""
        self._history += reply.turn


class ChatModule(Model):
    """A model that conversations are held with."""

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
            history: What was said before.
            tools: What the model may call in all of it.
            values: Values for slots of the prompter in all of it, as of :meth:`lazyprompt.Prompter.partial`.

        Raises:
            SlotError: A value is for no slot.
        """
        module = self if not values else self.share(self._prompter.partial(**values), self._history.messages)
        return Chat(module, history, tools)


def _written(message: Msg) -> Mapping[str, Any]:
    """A message as JSON values; ``Msg(**...)`` is the same message."""
    content = message.content if isinstance(message.content, str) else [asdict(block) for block in message.content]
    return {
        "name": message.name,
        "role": message.role,
        "content": content,
        **({} if message.url is None else {"url": message.url}),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
        **({"usage": dict(message.usage)} if message.usage else {}),
    }


def _output(output: object, name: str) -> str | list[Block]:
    """What a tool gave back, as a result holds it."""
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
