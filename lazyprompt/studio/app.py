"""The studio's server: which request gets which answer."""

from __future__ import annotations

import json
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from lazyprompt.errors import LazyPromptError, PromptFileMissingError
from lazyprompt.studio.guard import STATIC, Guard
from lazyprompt.studio.looking import Looking, fault
from lazyprompt.studio.requests import CheckRequest, DiffRequest, LookRequest, SaveRequest, WrongRequestError, asked
from lazyprompt.studio.workspace import Changed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.resources.abc import Traversable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from lazyprompt._base.json import JsonObject
    from lazyprompt.studio.guard import Tokens

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

_JSON = TYPES["json"]


class Answer(NamedTuple):
    """What is answered: a status, and JSON."""

    status: HTTPStatus
    body: JsonObject


# What a request brings (a path, or a body), and what does its work.
_Work: TypeAlias = "Callable[[Looking, bytes], Answer]"


def studio_app(looking: Looking, tokens: Tokens, port: int) -> ASGIApp:
    """The server.

    Args:
        looking: What looks at the files of a workspace.
        tokens: What lets a page in.
        port: The port that it is served at on this machine.
    """
    routes = [
        Route("/", _page),
        Route(f"{STATIC}{{name}}", _static),
        *(Route(f"/api/{name}", _gets(looking, work)) for name, work in _GETS.items()),
        *(Route(f"/api/{name}", _posts(looking, work), methods=["POST"]) for name, work in _POSTS.items()),
    ]
    handlers = {HTTPException: _refused, Exception: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # what is not there is nowhere
    return Guard(app, tokens, port)


def _about(looking: Looking, _: bytes) -> Answer:
    return Answer(HTTPStatus.OK, looking.about())


def _file(looking: Looking, path: bytes) -> Answer:
    return Answer(HTTPStatus.OK, looking.file(path.decode()))


def _versions(looking: Looking, path: bytes) -> Answer:
    return Answer(HTTPStatus.OK, looking.versions(path.decode()))


def _look(looking: Looking, body: bytes) -> Answer:
    return Answer(HTTPStatus.OK, looking.look(asked(LookRequest, body)))


def _check(looking: Looking, body: bytes) -> Answer:
    return Answer(HTTPStatus.OK, looking.check(asked(CheckRequest, body)))


def _diff(looking: Looking, body: bytes) -> Answer:
    return Answer(HTTPStatus.OK, looking.diff(asked(DiffRequest, body)))


def _save(looking: Looking, body: bytes) -> Answer:
    wanted = asked(SaveRequest, body)
    try:
        done = looking.workspace.save(wanted.path, wanted.text, wanted.hash)
    except LazyPromptError:  # of which some are errors of the disk as well
        raise
    except OSError as error:
        what = f"{wanted.path} cannot be written: {error.strerror or error}"
        return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": {"message": what}})
    if not isinstance(done, Changed):
        return Answer(HTTPStatus.OK, {"hash": done.hash})
    now = {"hash": None, "text": None} if done.now is None else done.now._asdict()
    return Answer(HTTPStatus.CONFLICT, {"error": {"message": done.why}, **now})


_GETS: Final[Mapping[str, _Work]] = {"workspace": _about, "file": _file, "versions": _versions}
_POSTS: Final[Mapping[str, _Work]] = {"look": _look, "check": _check, "diff": _diff, "save": _save}


def _gets(looking: Looking, work: _Work) -> Callable[[Request], object]:
    async def get(request: Request) -> Response:
        return await _worked(looking, work, request.query_params.get("path", "").encode("utf-8", "replace"))

    return get


def _posts(looking: Looking, work: _Work) -> Callable[[Request], object]:
    async def post(request: Request) -> Response:
        return await _worked(looking, work, await _body(request))

    return post


async def _worked(looking: Looking, work: _Work, given: bytes) -> Response:
    """The answer of some work, which is done in a thread: the server stays open to others meanwhile."""

    def work_out() -> Response:
        try:
            return _response(work(looking, given))
        except WrongRequestError as error:
            return _response(Answer(HTTPStatus.BAD_REQUEST, {"error": {"message": str(error)}}))
        except PromptFileMissingError as error:
            return _response(Answer(HTTPStatus.NOT_FOUND, {"error": {"message": str(error)}}))
        except LazyPromptError as error:
            return _response(Answer(HTTPStatus.BAD_REQUEST, {"error": fault(error, "")}))

    return await run_in_threadpool(work_out)


async def _body(request: Request) -> bytes:
    """The body of a request, if it is not too large."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MAX_BODY} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _response(answer: Answer) -> Response:
    # What stands for bytes of the environment that are no UTF-8 can be written as ASCII alone.
    return Response(json.dumps(answer.body), answer.status, media_type=_JSON)


async def _refused(_: Request, error: Exception) -> Response:
    """What is nowhere, or too large, or asked for in another way."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.BAD_REQUEST
    said = error.detail if isinstance(error, HTTPException) else str(error)
    return _response(Answer(HTTPStatus(status), {"error": {"message": said}}))


async def _failed(_: Request, error: Exception) -> Response:
    """A fault of ours; the server writes its traceback to the standard error."""
    what = f"lazyprompt failed, which it never should: {type(error).__name__}; the terminal has the traceback"
    return _response(Answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": {"message": what}}))


async def _page(_: Request) -> Response:
    return await _sent("index.html")


async def _static(request: Request) -> Response:
    return await _sent(request.path_params["name"])


async def _sent(name: str) -> Response:
    """A file of the page."""
    found = _page_files().get(name)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(found.read_bytes(), media_type=TYPES[name.rpartition(".")[2]])


def _page_files() -> dict[str, Traversable]:
    """The files of the page by their names; no others are ever sent."""
    return {
        each.name: each
        for each in files("lazyprompt.studio").joinpath("static").iterdir()
        if each.name.rpartition(".")[2] in TYPES
    }
