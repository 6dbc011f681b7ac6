"""The studio's server: the user's own page is answered, and everything else refused before it is read.

A page on the net can have a browser send requests to this machine. So each must name our own host, which a name that
was bent to this machine (DNS rebinding) does not; come from our own page where it says where it comes from; and bring
the token, which no other page can read.
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
from lazyprompt.studio.looking import Looking, NotSavedError, fault
from lazyprompt.studio.reading import CheckRequest, DiffRequest, LookRequest, SaveRequest, WrongRequestError, asked

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


MAX_BODY: Final = 8_000_000
"""The largest body that is read, in bytes: a prompt file of the largest size, with its inputs."""

TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
"""The files of the page, by their suffixes."""

# The status of an answer to each kind of error.
_STATUS: Final[Mapping[type[Exception], HTTPStatus]] = {
    WrongRequestError: HTTPStatus.BAD_REQUEST,
    PromptFileMissingError: HTTPStatus.NOT_FOUND,
    LazyPromptError: HTTPStatus.BAD_REQUEST,
    NotSavedError: HTTPStatus.CONFLICT,
    Exception: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def studio_app(looking: Looking, tokens: Tokens, port: int) -> ASGIApp:
    """Make the server.

    Args:
        looking: The looks at the files of a workspace.
        tokens: The tokens that let a page in.
        port: The port that it is served at on this machine.
    """
    gets: dict[str, Callable[[str], JsonObject]] = {
        "workspace": lambda _: looking.about(),
        "file": looking.file,
        "versions": looking.versions,
    }
    posts: dict[str, Callable[[bytes], JsonObject]] = {
        "look": lambda body: looking.look(asked(LookRequest, body)),
        "check": lambda body: looking.check(asked(CheckRequest, body)),
        "diff": lambda body: looking.diff(asked(DiffRequest, body)),
        "save": lambda body: looking.save(asked(SaveRequest, body)),
    }
    routes = [
        Route("/", _sent),
        Route(f"{STATIC}{{name}}", _sent),
        *(Route(f"/api/{name}", partial(_get, work=work)) for name, work in gets.items()),
        *(Route(f"/api/{name}", partial(_post, work=work), methods=["POST"]) for name, work in posts.items()),
    ]
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys((HTTPException, *_STATUS), _refused))
    app.router.redirect_slashes = False  # what is not there is nowhere
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
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MAX_BODY} bytes")
        pieces.append(piece)
    # In a thread, so that the server stays open to others.
    return await run_in_threadpool(lambda: _response(work(b"".join(pieces))))


def _response(body: JsonObject, status: int = HTTPStatus.OK) -> Response:
    # What stands for bytes of the environment that are no UTF-8 can be written as ASCII alone.
    return Response(json.dumps(body), status, media_type=TYPES["json"])


async def _refused(_: Request, error: Exception) -> Response:
    """Answer with an error; of a fault of ours the server writes its traceback to the standard error."""
    if isinstance(error, HTTPException):
        return _response({"error": {"message": error.detail}}, error.status_code)
    kind = next(kind for kind in _STATUS if isinstance(error, kind))
    found: JsonObject = fault(error, "") if kind is LazyPromptError else {"message": str(error)}
    body: JsonObject = {"error": found}
    status = _STATUS[kind]
    if kind is Exception:
        what = f"lazyprompt failed, which it never should: {type(error).__name__}"
        found["message"] = f"{what}; the terminal has the traceback"
    elif isinstance(error, NotSavedError):
        body |= error.now or {}
        status = status if error.now else HTTPStatus.INTERNAL_SERVER_ERROR
    return _response(body, status)


def _sent(request: Request) -> Response:
    """Send a file of the page; no others are ever sent."""
    name: str = request.path_params.get("name", "index.html")
    static = files("lazyprompt.studio").joinpath("static")
    suffix = name.rpartition(".")[2]
    if suffix not in TYPES or name not in {each.name for each in static.iterdir()}:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(static.joinpath(name).read_bytes(), media_type=TYPES[suffix])
