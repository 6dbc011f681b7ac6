"""The studio's server, which accepts requests only from its own page and rejects others before reading their bodies.

Any website can make a browser send requests to this machine. A request must therefore contain the server's own host
name, which DNS rebinding cannot fake, and the secret token, which no other page can read. If a request has an
``Origin`` header, the header must contain the server's origin.
"""

from __future__ import annotations

import json
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from importlib.resources import files
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from lazyprompt.errors import LazyPromptError, PromptFileMissingError
from lazyprompt.studio.looking import Looking, NotSavedError, error_json
from lazyprompt.studio.reading import (
    CheckRequest,
    DiffRequest,
    LookRequest,
    SaveRequest,
    WrongRequestError,
    parse_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lazyprompt._base.json import JsonObject


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
"""The headers for every response, which forbid other origins, caching, framing and inline scripts."""

TOKEN_HEADER: Final = "x-studio-token"  # noqa: S105 - its name
"""The header that contains the token. Another origin cannot set it without a CORS preflight."""

STATIC: Final = "/static/"
"""The path prefix for the page's own files. They contain no user data and require no token."""


class PageTokens(NamedTuple):
    """The secrets that give the page access to the server.

    Attributes:
        token: The secret token that each request must contain to be authorized.
        ticket: A one-time code that the browser exchanges for the token. The URL passed to the browser contains the
            one-time code instead of the token, because other users of this machine can see the URL.
    """

    token: str
    ticket: str

    @classmethod
    def create(cls) -> PageTokens:
        """Create a pair of random tokens."""
        return cls(token_urlsafe(32), token_urlsafe(32))


class Guard:
    """Middleware that accepts only requests from the studio's page, and adds security headers to each response.

    Args:
        app: The wrapped ASGI application.
        tokens: The secret tokens that authorize requests.
        port: The server's port.
    """

    def __init__(self, app: ASGIApp, tokens: PageTokens, port: int) -> None:
        self._app = app
        self._token = tokens.token
        self._ticket: str | None = tokens.ticket
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"expected an http request, not {scope['type']}")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._choose_response(scope)(scope, receive, guarded)

    def _choose_response(self, scope: Scope) -> ASGIApp:
        """Return the wrapped application if the request is allowed, or else a response that rejects it."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _refusal("Wrong host name: open the URL that lazyprompt studio printed.")
        if not self._origins.issuperset(origins):
            return _refusal("This page is not served by lazyprompt studio.")
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


_WITHOUT_TOKEN: Final = _refusal("The token is missing or wrong: open the URL that lazyprompt studio printed last.")


MAX_BODY: Final = 8_000_000
"""The maximum size of a request body, in bytes: enough for the largest prompt file with its inputs."""

TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
}
"""The media types for the page's files, by suffix."""

_STATUS: Final[Mapping[type[Exception], HTTPStatus]] = {
    WrongRequestError: HTTPStatus.BAD_REQUEST,
    PromptFileMissingError: HTTPStatus.NOT_FOUND,
    LazyPromptError: HTTPStatus.BAD_REQUEST,
    NotSavedError: HTTPStatus.CONFLICT,
    Exception: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def studio_app(looking: Looking, tokens: PageTokens, port: int) -> ASGIApp:
    """Create the server's ASGI application.

    Args:
        looking: The object that returns the views of the workspace's files.
        tokens: The secret tokens that authorize requests.
        port: The server's port.
    """
    gets: dict[str, Callable[[str], JsonObject]] = {
        "workspace": lambda _: looking.about(),
        "file": looking.file,
        "versions": looking.versions,
    }
    posts: dict[str, Callable[[bytes], JsonObject]] = {
        "look": lambda body: looking.look(parse_request(LookRequest, body)),
        "check": lambda body: looking.check(parse_request(CheckRequest, body)),
        "diff": lambda body: looking.diff(parse_request(DiffRequest, body)),
        "save": lambda body: looking.save(parse_request(SaveRequest, body)),
    }
    routes = [
        Route("/", _send_file),
        Route(f"{STATIC}{{name}}", _send_file),
        *(Route(f"/api/{name}", partial(_get, work=work)) for name, work in gets.items()),
        *(Route(f"/api/{name}", partial(_post, work=work), methods=["POST"]) for name, work in posts.items()),
    ]
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys((HTTPException, *_STATUS), _error_response))
    app.router.redirect_slashes = False  # return status 404 for an unknown path instead of a redirect
    return Guard(app, tokens, port)


async def _get(request: Request, work: Callable[[str], JsonObject]) -> Response:
    path = request.query_params.get("path", "").encode("utf-8", "replace").decode()
    return await run_in_threadpool(lambda: _response(work(path)))


async def _post(request: Request, work: Callable[[bytes], JsonObject]) -> Response:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"request is too large; the limit is {MAX_BODY} bytes"
            )
        pieces.append(piece)
    # Run the work in a thread, so that the server can accept other requests.
    return await run_in_threadpool(lambda: _response(work(b"".join(pieces))))


def _response(body: JsonObject, status: int = HTTPStatus.OK) -> Response:
    # File names can contain lone surrogates, which json.dumps escapes.
    return Response(json.dumps(body), status, media_type=TYPES["json"])


async def _error_response(_: Request, error: Exception) -> Response:
    """Return an error as a JSON response; the server prints the traceback of an unexpected error."""
    if isinstance(error, HTTPException):
        return _response({"error": {"message": error.detail}}, error.status_code)
    kind = next(kind for kind in _STATUS if isinstance(error, kind))
    found: JsonObject = error_json(error, "") if kind is LazyPromptError else {"message": str(error)}
    body: JsonObject = {"error": found}
    status = _STATUS[kind]
    if kind is Exception:
        what = f"unexpected error, a bug in lazyprompt: {type(error).__name__}"
        found["message"] = f"{what}; see the traceback in the terminal"
    elif isinstance(error, NotSavedError):
        body |= error.now or {}
        status = status if error.now else HTTPStatus.INTERNAL_SERVER_ERROR
    return _response(body, status)


def _send_file(request: Request) -> Response:
    """Return one of the page's own files; any other name returns status 404."""
    name: str = request.path_params.get("name", "index.html")
    static = files("lazyprompt.studio").joinpath("static")
    suffix = name.rpartition(".")[2]
    if suffix not in TYPES or name not in {each.name for each in static.iterdir()}:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(static.joinpath(name).read_bytes(), media_type=TYPES[suffix])
