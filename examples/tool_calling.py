"""A tool loop: the model calls two Python functions until it can answer.

python -m pip install ".[openai]"                    in a checkout
python examples/tool_calling.py                      with a stand-in for the model
OPENAI_API_KEY=... python examples/tool_calling.py   with a provider's model
"""

from collections.abc import Callable
from typing import Literal

from lazyprompt import Chat, ChatPrompter, OnlineChatModule, ToolUseBlock
from stand_in import provider

SHELVES = {"Emma": "shelf B3", "Ulysses": "lent until Friday"}
HOURS = {"weekday": "9:30-18:00", "saturday": "10:00-16:00", "sunday": "closed"}


def find_book(title: str) -> str:
    """Look up where a book stands, or until when it is lent.

    Args:
        title: The title of the book.
    """
    if title not in SHELVES:
        raise LookupError(f"no book {title!r}; the books are {', '.join(SHELVES)}")
    return SHELVES[title]


def opening_hours(day: Literal["weekday", "saturday", "sunday"]) -> str:
    """Look up when the library is open.

    Args:
        day: The kind of day.
    """
    return HOURS[day]


TOOLS: dict[str, Callable[..., str]] = {tool.__name__: tool for tool in (find_book, opening_hours)}
MOST_ROUNDS = 5  # a model may call tools for ever
QUESTION = "Can I pick up Emmma on Saturday, and when?"
# What the stand-in answers: a call with a wrong title, two calls at once, and the answer.
ANSWERS = (
    [("find_book", {"title": "Emmma"})],
    [("find_book", {"title": "Emma"}), ("opening_hours", {"day": "saturday"})],
    "Yes: Emma is on shelf B3, and on Saturday the library is open from 10:00 to 16:00.",
)


def run(call: ToolUseBlock) -> object:
    """Run one call. What goes wrong is the model's to read: it can try again."""
    if call.name not in TOOLS:
        return {"error": f"no tool {call.name!r}"}
    try:
        return TOOLS[call.name](**call.input)
    except (LookupError, TypeError) as error:
        return {"error": str(error)}


def answer(chat: Chat, question: str) -> str:
    """Ask a question, and run the tools that the model calls until it answers."""
    reply = chat(question)
    for _ in range(MOST_ROUNDS):
        if not reply.tool_calls:
            return str(reply)
        # All calls of an answer get their result before the model goes on.
        for call in reply.tool_calls:
            result = run(call)
            print(f"tool:   {call.name}({', '.join(f'{name}={value!r}' for name, value in call.input.items())})")
            print(f"        {result}")
            chat.add_result(call, result)
        reply = chat()
    raise RuntimeError(f"no answer after {MOST_ROUNDS} rounds of tool calls")


def main() -> None:
    """Ask one question that takes both tools."""
    with provider(*ANSWERS) as connection:
        module = OnlineChatModule("openai", **connection)
        module.prompt(ChatPrompter("You help the readers of a library. Look things up, guess nothing.", system=""))
        print(f"reader: {QUESTION}")
        print(f"answer: {answer(module.chat(tools=[*TOOLS.values()]), QUESTION)}")


if __name__ == "__main__":
    main()
