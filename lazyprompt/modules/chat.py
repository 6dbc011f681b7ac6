"""A conversation with a model, which keeps what was said."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.errors import HistoryError
from lazyprompt.history import messages_from
from lazyprompt.messages import Msg, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.history import HistoryLike
    from lazyprompt.modules._base import ChatModule
    from lazyprompt.modules.reply import Reply
    from lazyprompt.modules.streams import AsyncReplyStream, ReplyStream
    from lazyprompt.modules.structured import ResponseFormat
    from lazyprompt.prompt_maker import ToolsLike

_FORMAT = "lazyprompt.chat/1"


class Chat:
    """A conversation: each call is a turn, and the history is kept.

    What fails leaves the history as it was. A budget of the module or its prompter trims what is sent; what was said
    stays here. Not to be used by several threads at once.

    Args:
        module: The model.
        history: What was said before.
        tools: What the model may call in all of the conversation.
    """

    def __init__(self, module: ChatModule, history: HistoryLike | None = None, tools: ToolsLike = None) -> None:
        self.module = module
        self._tools = tools
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
        reply = self.module(input, self._history, self._tools, response_format=response_format, **params)
        self._keep(input)(reply)
        return reply

    async def acall(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> Reply:
        """The same as a call, in an event loop."""
        reply = await self.module.acall(input, self._history, self._tools, response_format=response_format, **params)
        self._keep(input)(reply)
        return reply

    def stream(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> ReplyStream:
        """The same as a call, with the answer as it is said; the turn is kept when it is whole."""
        stream = self.module.stream(input, self._history, self._tools, response_format=response_format, **params)
        return stream.then(self._keep(input))

    def astream(
        self,
        input: object = None,  # noqa: A002 - as of a module
        *,
        response_format: ResponseFormat | None = None,
        **params: Any,  # noqa: ANN401 - the client's own
    ) -> AsyncReplyStream:
        """The same as :meth:`stream`, in an event loop."""
        stream = self.module.astream(input, self._history, self._tools, response_format=response_format, **params)
        return stream.then(self._keep(input))

    def add_result(self, call: ToolUseBlock, output: object) -> None:
        """Tell what a tool that the model called gave back; ``chat()`` lets the model go on.

        Args:
            call: The call, out of ``reply.tool_calls``.
            output: What it gave: text, blocks, or a JSON value.
        """
        said = output if isinstance(output, str | list) else json.dumps(output, ensure_ascii=False)
        block = ToolResultBlock(call.id, call.name, cast("str", said))
        self._history += (Msg("tool", [block], "tool"),)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a JSON file, all of it or nothing.

        Args:
            path: The file.

        Raises:
            OSError: It cannot be written.
        """
        saved = {"format": _FORMAT, "messages": [_written(message) for message in self._history]}
        target = Path(path)
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, prefix=f".{target.name}.", encoding="utf-8", delete=False
        ) as file:
            try:
                json.dump(saved, file, ensure_ascii=False, indent=1)
                file.flush()
                os.replace(file.name, target)  # noqa: PTH105 - the same, of a name
            except BaseException:
                os.unlink(file.name)  # noqa: PTH108 - the same
                raise

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on with the conversation of a file that :meth:`save` wrote.

        Args:
            path: The file.

        Raises:
            HistoryError: It holds no conversation.
            OSError: It cannot be read.
        """
        try:
            saved: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            if saved["format"] != _FORMAT:
                raise HistoryError(f"{os.fspath(path)} holds a conversation of the form {saved['format']!r}")
            self._history = tuple(Msg(**message) for message in saved["messages"])
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, HistoryError):
                raise
            raise HistoryError(f"{os.fspath(path)} holds no conversation: {error}") from error

    def _keep(self, input: object) -> Callable[[Reply], None]:  # noqa: A002 - as of a module
        """What keeps a turn when its answer is there."""
        said = self.module.said(input, self._history)

        def keep(reply: Reply) -> None:
            self._history += (*said, reply.message)

        return keep


def _written(message: Msg) -> Mapping[str, Any]:
    """A message as JSON values; ``Msg(**...)`` is the same message."""
    content = message.content if isinstance(message.content, str) else [asdict(block) for block in message.content]
    return {
        "name": message.name,
        "role": message.role,
        "content": content,
        **({"url": list(message.urls)} if message.urls else {}),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
        **({"usage": dict(message.usage)} if message.usage else {}),
    }
