"""Answers that come piece by piece, for threads and for event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lazyprompt.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

    from lazyprompt.answers.parser import Delta
    from lazyprompt.formatters.reply import Reply


class _End:
    """What waits for the whole answer. It knows nothing of its stream, so one that is dropped is closed at once."""

    __slots__ = ("reply", "then")

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.then: tuple[Callable[[Reply], object], ...] = ()

    def __call__(self, reply: Reply) -> None:
        self.reply = reply
        for call in self.then:
            call(reply)


class _Stream:
    """What both kinds share: the whole answer at the end."""

    def __init__(self) -> None:
        self._end = _End()

    @property
    def reply(self) -> Reply:
        """The whole answer.

        Raises:
            ModuleError: The stream is not at its end.
        """
        if self._end.reply is None:
            raise ModuleError("the answer is not whole yet: iterate over the stream to its end first")
        return self._end.reply

    def then(self, call: Callable[[Reply], object]) -> Self:
        """Call something with the whole answer at the end.

        Args:
            call: What is called.

        Returns:
            The stream itself.
        """
        self._end.then += (call,)
        return self


class ReplyStream(_Stream):
    """An answer that comes piece by piece: iterate over it for its text, or over :meth:`deltas` for all of it.

    Closing it (``with``, or ``close``) before its end closes the connection.

    Args:
        deltas: Begins it; given what is called with the whole answer at the end.
    """

    def __init__(self, deltas: Callable[[Callable[[Reply], Any]], Generator[Delta]]) -> None:
        super().__init__()
        self._deltas = deltas(self._end)

    def __iter__(self) -> Iterator[str]:
        """The pieces of the text."""
        return (delta.text for delta in self._deltas if delta.kind == "text")

    def deltas(self) -> Iterator[Delta]:
        """All that is new: text, thoughts and calls."""
        return self._deltas

    def close(self) -> None:
        """End it here."""
        self._deltas.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncReplyStream(_Stream):
    """The same as :class:`ReplyStream` for ``async for`` and ``async with``.

    Args:
        deltas: Begins it; given what is called with the whole answer at the end.
    """

    def __init__(self, deltas: Callable[[Callable[[Reply], Any]], AsyncGenerator[Delta]]) -> None:
        super().__init__()
        self._deltas = deltas(self._end)

    async def __aiter__(self) -> AsyncIterator[str]:
        """The pieces of the text."""
        async for delta in self._deltas:
            if delta.kind == "text":
                yield delta.text

    def deltas(self) -> AsyncIterator[Delta]:
        """All that is new: text, thoughts and calls."""
        return self._deltas

    async def aclose(self) -> None:
        """End it here."""
        await self._deltas.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
