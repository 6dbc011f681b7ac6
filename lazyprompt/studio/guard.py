"""Access to the studio: for this machine's user, by his own page. Everything else is refused before it is read.

A page on the net can have a browser send requests to this machine. So each must name our own host, which a name that
was bent to this machine (DNS rebinding) does not; come from our own page where it says where it comes from; and bring
the token, which no other page can read.
"""

from __future__ import annotations

from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""What every answer has: nothing is loaded from elsewhere, kept, framed, or run that is not a file of ours."""

TOKEN_HEADER: Final = "x-studio-token"  # noqa: S105 - its name
"""The header that brings the token; a page of another origin cannot set it without being asked first."""

STATIC: Final = "/static/"
"""What needs no token: the page's own files, which hold nothing of anybody."""


class Tokens(NamedTuple):
    """Tokens that let a page in.

    Attributes:
        token: What each request brings.
        ticket: What fetches the token, once: other users of this machine see the address that a browser is started
            with.
    """

    token: str
    ticket: str

    @classmethod
    def made(cls) -> Tokens:
        """New ones, which nobody can guess."""
        return cls(token_urlsafe(32), token_urlsafe(32))


class Guard:
    """Refuses all requests but those of the user's own page, and gives each answer its headers.

    Args:
        app: What answers the others.
        tokens: What they bring.
        port: The port that it is served at.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, port: int) -> None:
        self._app = app
        self._token = tokens.token
        self._ticket: str | None = tokens.ticket
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":  # the server's own beginning and end
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"the studio speaks http, and not {scope['type']}")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._answering(scope)(scope, receive, guarded)

    def _answering(self, scope: Scope) -> ASGIApp:
        """Return the answer to a request: a refusal, or the content it asks for."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _refusal("This is another host: open the address that lazyprompt studio printed.")
        if not self._origins.issuperset(origins):
            return _refusal("This page is not that of lazyprompt studio.")
        path: str = scope["path"]
        if path.startswith(STATIC):
            return self._app
        if path != "/":
            is_ours = _is_one(headers.getlist(TOKEN_HEADER), self._token)
            return self._app if is_ours else _WITHOUT_TOKEN
        query = QueryParams(scope["query_string"])
        if self._ticket is not None and _is_one(query.getlist("ticket"), self._ticket):
            self._ticket = None
            return RedirectResponse(f"/?token={self._token}", 303)
        return self._app if _is_one(query.getlist("token"), self._token) else _WITHOUT_TOKEN


def _is_one(given: list[str], secret: str) -> bool:
    return len(given) == 1 and compare_digest(given[0].encode(), secret.encode())


def _refusal(why: str) -> ASGIApp:
    return PlainTextResponse(f"{why}\n", 403)


_WITHOUT_TOKEN: Final = _refusal("The token is missing or wrong: open the address that lazyprompt studio printed last.")
