"""A service whose prompts are files: a prompt file sorts each ticket, a prompt library answers it in its language.

python -m pip install ".[openai]" fastapi uvicorn      in a checkout
python examples/prompt_service.py                      serves, sends itself three tickets, and prints the answers
OPENAI_API_KEY=... uvicorn --factory --app-dir examples prompt_service:make_app      serves until Ctrl-C

The files of the library may be edited while it runs: the next request reads the new text.
"""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from lazyprompt import ModuleError, OnlineChatModule, PromptFileError, PromptLibrary, Prompty, SlotError
from stand_in import exit_if_missing, post, provider, serve

with exit_if_missing("fastapi", "uvicorn"):
    from fastapi import FastAPI, Header, HTTPException

FOLDER = Path(__file__).parent / "library"


class Ticket(BaseModel):
    """The body of a request."""

    customer: str
    text: str
    tone: str | None = None


def make_app(module: OnlineChatModule | None = None) -> FastAPI:
    """Return the application; both prompts share one client."""
    app = FastAPI()
    model = module or OnlineChatModule("openai")
    sorter = model.share(Prompty.load(FOLDER / "classify" / "intent.prompty"))
    library = PromptLibrary(FOLDER)

    @app.post("/tickets")
    async def tickets(ticket: Ticket, accept_language: Annotated[str, Header()] = "en") -> dict[str, Any]:
        language = accept_language.partition(",")[0].partition(";")[0]
        inputs = {"customer": ticket.customer, "ticket": ticket.text} | ({"tone": ticket.tone} if ticket.tone else {})
        try:
            # `outputs` of the file are the form of its answers: `parsed` is a dict.
            sorted_as: Any = (await sorter.acall({"message": ticket.text})).parsed
            # Where a language is not there, a wider one is taken, and then the default.
            prompt = await library.aget("support/answer-ticket", lang=language)
            draft = await model.share(prompt).acall(inputs)
        except (PromptFileError, SlotError) as error:  # the file says which inputs there are
            raise HTTPException(422, str(error)) from error
        except ModuleError as error:
            raise HTTPException(502, f"no answer from the model: {error.kind}") from error
        # The hash tells later which prompt gave this answer.
        return {
            "intent": sorted_as["intent"],
            "prompt": prompt.description,
            "hash": prompt.hash[:8],
            "draft": str(draft),
        }

    return app


def main() -> None:
    """Serve, and send three tickets: in English, in Chinese, and one with a tone that the file does not know."""
    tickets = (
        ("en-IE,en", {"customer": "Ada", "text": "The book came with a torn cover."}),
        ("zh-CN", {"customer": "苏州读者", "text": "书的封面破了。"}),
        ("en", {"customer": "Bo", "text": "Where is my parcel?", "tone": "angry"}),
    )
    answers = (
        '{"intent": "complaint", "confidence": 0.97}',
        "Dear Ada, I am sorry about the torn cover. Could you send us a photo of it?",
        '{"intent": "complaint", "confidence": 0.95}',
        "您好，很抱歉封面破损。请您发一张照片给我们。",
        '{"intent": "order_status", "confidence": 0.98}',
    )
    with (
        provider(*answers) as connection,
        serve(make_app(OnlineChatModule("openai", **connection))) as address,
    ):
        for language, ticket in tickets:
            response = post(address, "/tickets", ticket, **{"Accept-Language": language})
            print(f"POST /tickets ({language}) {json.dumps(ticket, ensure_ascii=False)}")
            print(f"  {response.status}")
            for name, value in json.load(response).items():
                print(f"  {name}: {value}")


if __name__ == "__main__":
    main()
