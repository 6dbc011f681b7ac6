"""A stand-in for a model's server, which lets the examples run without a key.

    with provider("Hello!", "You are welcome.") as connection:
        module = OnlineChatModule("openai", **connection)

It listens on this machine only and gives the answers of its list one after the other, whatever it is asked. It speaks
OpenAI's chat completions and Ollama's chat, whole and streamed. If ``OPENAI_API_KEY`` is set, `connection` is empty:
the provider answers, in words of its own.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

# The text of an answer, or the tool calls in it: names with arguments.
Answer = str | Sequence[tuple[str, Mapping[str, Any]]]
PAUSE = 0.01  # seconds between the words of a stream, to let it be seen


@contextmanager
def provider(*answers: Answer) -> Iterator[dict[str, Any]]:
    """Yield the arguments that connect a module to OpenAI if there is a key, else to a server with these answers."""
    with exit_if_missing():
        if os.environ.get("OPENAI_API_KEY"):
            yield {}
            return
        with model_server(*answers) as address:
            yield {"base_url": f"{address}/v1", "api_key": "none-needed"}


@contextmanager
def exit_if_missing(*packages: str) -> Iterator[None]:
    """End the program with one line that says what to install if an import fails.

    Args:
        packages: The packages to install; none for the extras of lazyprompt, whose errors name the command.
    """
    try:
        yield
    except ImportError as error:
        sys.exit(f"{error}; install it with: pip install {' '.join(packages)}" if packages else str(error))


@contextmanager
def model_server(*answers: Answer) -> Iterator[str]:
    """Start a server that gives these answers in turn, and yield its address."""
    with _Server(list(answers)) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def serve(app: Any) -> Iterator[str]:  # noqa: ANN401 - any ASGI application
    """Serve an ASGI application with uvicorn on a free port, and yield its address."""
    import socket  # noqa: PLC0415 - with uvicorn, which only two examples need

    import uvicorn  # noqa: PLC0415 - as above

    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def post(address: str, path: str, body: object, **headers: str) -> HTTPResponse:
    """Send a body as JSON, and return the response, which can be read while it comes."""
    connection = HTTPConnection(address)
    connection.request(
        "POST", path, json.dumps(body), {"Content-Type": "application/json", "Connection": "close", **headers}
    )
    return connection.getresponse()


class _Server(ThreadingHTTPServer):
    """A server that gives answers in turn."""

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers


class _Handler(BaseHTTPRequestHandler):
    """The answer to one request, which ends with the connection."""

    server: _Server

    def do_POST(self) -> None:
        """Write the next answer in the form of the path that is asked."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.server.answers:
            self._write(json.dumps({"error": {"message": "the stand-in has no more answers"}}), status=400)
            return
        answer = self.server.answers.pop(0)
        if self.path == "/api/chat":
            self._write(*(json.dumps(each) + "\n" for each in _ollama(answer, asked)))
        elif asked.get("stream"):
            events = [f"data: {json.dumps(each)}\n\n" for each in _chunks(answer, asked)]
            self._write(*events, "data: [DONE]\n\n", content="text/event-stream")
        else:
            self._write(json.dumps(_completion(answer, asked)))

    def _write(self, *pieces: str, status: int = 200, content: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece.encode())
            self.wfile.flush()
            time.sleep(PAUSE if len(pieces) > 1 else 0)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log of requests."""


def _words(text: str) -> list[str]:
    """Return a text in the pieces in which it is streamed."""
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


def _counts(answer: Answer, asked: Mapping[str, Any]) -> dict[str, int]:
    """Return about as many tokens as there are: four characters each."""
    prompt, completion = (-(-len(json.dumps(each, ensure_ascii=False)) // 4) for each in (asked["messages"], answer))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _calls(answer: Answer) -> list[dict[str, Any]]:
    """Return the tool calls of an answer in OpenAI's form."""
    calls = (
        [] if isinstance(answer, str) else [{"name": name, "arguments": json.dumps(given)} for name, given in answer]
    )
    return [{"index": at, "id": f"call_{at}", "type": "function", "function": call} for at, call in enumerate(calls)]


def _message(answer: Answer) -> dict[str, Any]:
    text = answer if isinstance(answer, str) else None
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if (calls := _calls(answer)) else {})}


def _finish(answer: Answer) -> str:
    return "stop" if isinstance(answer, str) else "tool_calls"


def _completion(answer: Answer, asked: Mapping[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": _message(answer), "finish_reason": _finish(answer)}
    made = {"id": "answer", "object": "chat.completion", "created": 0, "model": asked["model"]}
    return {**made, "choices": [choice], "usage": _counts(answer, asked)}


def _chunks(answer: Answer, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    made = {"id": "answer", "object": "chat.completion.chunk", "created": 0, "model": asked["model"]}
    deltas = [{"content": word} for word in _words(answer)] if isinstance(answer, str) else [_message(answer)]
    for delta in deltas:
        yield {**made, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]}
    yield {**made, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(answer)}]}
    yield {**made, "choices": [], "usage": _counts(answer, asked)}


def _ollama(answer: Answer, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    made = {"model": asked["model"], "created_at": "2026-01-01T00:00:00Z"}
    for piece in _words(str(answer)) if asked.get("stream") else [str(answer)]:
        yield {**made, "message": {"role": "assistant", "content": piece}, "done": not asked.get("stream")}
    if asked.get("stream"):
        yield {**made, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
