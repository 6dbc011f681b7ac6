"""The studio's server: which request gets which answer."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from lazyprompt.errors import LazyPromptError, PromptFileMissingError
from lazyprompt.studio.guard import STATIC, Guard
from lazyprompt.studio.looking import NotSavedError, fault
from lazyprompt.studio.requests import CheckRequest, DiffRequest, LookRequest, SaveRequest, WrongRequestError, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from lazyprompt._base.json import JsonObject
    from lazyprompt.studio.guard import Tokens
    from lazyprompt.studio.looking import Looking

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
