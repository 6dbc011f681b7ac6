"""A FastAPI endpoint that streams a model's answer as server-sent events.

python -m pip install ".[openai]" fastapi uvicorn      in a checkout
python examples/fastapi_stream.py                      serves, asks itself one question, and prints what arrives
OPENAI_API_KEY=... uvicorn --factory --app-dir examples fastapi_stream:make_app      serves until Ctrl-C; then

    curl -N localhost:8000/answers -H 'Content-Type: application/json' -d '{"question": "When do you open?"}'
"""

import json
from collections.abc import AsyncIterator

from pydantic import BaseModel, Field

from lazyprompt import ChatPrompter, ModuleError, OnlineChatModule
from stand_in import exit_if_missing, post, provider, serve

with exit_if_missing("fastapi", "uvicorn"):
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

PROMPTER = ChatPrompter("You are the help desk of a library. It is open from 9:30 to 18:00.", system="")


class Turn(BaseModel):
    """The body of a request; the browser keeps the history and sends it along."""

    question: str = Field(min_length=1, max_length=2000)
    history: list[tuple[str, str]] = Field(default=[], max_length=50)


async def events(desk: OnlineChatModule, turn: Turn) -> AsyncIterator[str]:
    """Yield the pieces of an answer as events, and at the end its tokens or what went wrong."""
    try:
        # If the browser goes away, the block ends, and with it the connection to the model.
        async with desk.astream(turn.question, turn.history) as stream:
            async for piece in stream:
                yield f"data: {json.dumps(piece, ensure_ascii=False)}\n\n"
        yield f"event: end\ndata: {json.dumps(stream.reply.usage)}\n\n"
    except ModuleError as error:
        yield f"event: error\ndata: {json.dumps(error.kind)}\n\n"


def make_app(module: OnlineChatModule | None = None) -> FastAPI:
    """Return the application; one module serves all requests at once."""
    app = FastAPI()
    desk = (module or OnlineChatModule("openai")).prompt(PROMPTER)

    @app.post("/answers")
    async def answers(turn: Turn) -> StreamingResponse:
        return StreamingResponse(events(desk, turn), media_type="text/event-stream")

    return app


def main() -> None:
    """Serve, ask one question with a history, and print the events as they come."""
    turn = {"question": "And in the evening?", "history": [["When do you open?", "At 9:30."]]}
    with (
        provider("The library closes at 18:00.") as connection,
        serve(make_app(OnlineChatModule("openai", **connection))) as address,
    ):
        print(f"POST /answers {json.dumps(turn)}")
        response = post(address, "/answers", turn)
        print(response.status, response.headers["Content-Type"])
        for line in response:
            if line.strip():
                print(line.decode().rstrip(), flush=True)


if __name__ == "__main__":
    main()
