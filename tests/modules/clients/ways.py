"""The four ways to ask a client: for an answer or a stream, in a thread or in an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lazyprompt.modules.client import Client, Request


def ways(client: Client, request: Request) -> Iterator[Callable[[], object]]:
    """Functions that ask; what they give is the answer, or the list of events."""

    async def asend() -> object:
        try:
            return await client.asend(request)
        finally:
            await client.aclose()

    async def astream() -> list[object]:
        try:
            return [event async for event in client.astream(request)]
        finally:
            await client.aclose()

    yield lambda: client.send(request)
    yield lambda: list(client.stream(request))
    yield lambda: asyncio.run(asend())
    yield lambda: asyncio.run(astream())
