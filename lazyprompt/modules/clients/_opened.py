"""Official clients that are open: one for all threads, one for each event loop; and the key they are made with."""

from __future__ import annotations

import re
from asyncio import get_running_loop, to_thread
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from lazyprompt.errors import ModuleError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from lazyprompt._base.secret import Secret

# What stands in the place of a key where the server asks for none: without one, clients would look for one themselves,
# and send to this server what they find in the environment.
NO_KEY = "none"
_CARRIED = re.compile("[ -~]*")

_Client = TypeVar("_Client")
_AsyncClient = TypeVar("_AsyncClient")


def key_of(secret: Secret | None) -> str:
    """A key as a header can carry it, without the white space that stands around it in many files.

    Args:
        secret: The key; None where the server asks for none.

    Raises:
        ModuleError: It holds what no header can carry. HTTP clients quote such a header in their errors.
    """
    if secret is None:
        return NO_KEY
    # No variable holds the key: whatever shows the locals of a traceback would show it.
    if not _CARRIED.fullmatch(secret.reveal().strip()):
        raise ModuleError("the key holds characters that no header can carry; keys are of letters, digits and signs")
    return secret.reveal().strip()


class Opened(Generic[_Client, _AsyncClient]):
    """Makes clients when they are first asked for, and gives the same ones from then on.

    A client's connections belong to the event loop they were made in, so each loop has a client of its own.

    Args:
        make: Makes the client for threads.
        amake: Makes the client for an event loop; called in another thread.
    """

    __slots__ = ("_amake", "_client", "_lock", "_loops", "_make")

    def __init__(self, make: Callable[[], _Client], amake: Callable[[], _AsyncClient]) -> None:
        self._make = make
        self._amake = amake
        self._lock = Lock()
        self._client: _Client | None = None
        self._loops: dict[AbstractEventLoop, _AsyncClient] = {}

    def client(self) -> _Client:
        """The client for threads."""
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    async def aclient(self) -> _AsyncClient:
        """The client of the running event loop."""
        loop = get_running_loop()
        client = self._loops.get(loop)
        # Imports and certificates take up to a second, for which the loop is not to stand still.
        return client if client is not None else await to_thread(self._made_for, loop)

    def taken(self) -> _Client | None:
        """The client for threads, to be closed; whoever asks next gets a new one."""
        with self._lock:
            client, self._client = self._client, None
            return client

    def ataken(self) -> _AsyncClient | None:
        """The same as :meth:`taken` for the running event loop."""
        with self._lock:
            return self._loops.pop(get_running_loop(), None)

    def _made_for(self, loop: AbstractEventLoop) -> _AsyncClient:
        with self._lock:
            # What belongs to a loop that is closed can only be dropped.
            self._loops = {each: client for each, client in self._loops.items() if not each.is_closed()}
            if loop not in self._loops:
                self._loops[loop] = self._amake()
            return self._loops[loop]
