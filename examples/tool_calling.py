"""An agent loop: the model calls two Python functions until it can answer, and each step is printed.

python -m pip install ".[openai]"                    in a checkout
python examples/tool_calling.py                      with a stand-in for the model
OPENAI_API_KEY=... python examples/tool_calling.py   with a provider's model
"""

import logging
from typing import Literal

from lazyprompt import ChatPrompter, OnlineChatModule, Reply, ToolResultBlock
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


PROMPTER = ChatPrompter("You help the readers of a library. Look things up, guess nothing.", system="")
QUESTION = "Can I pick up Emmma on Saturday, and when?"
# The stand-in's answers: a call with a wrong title, two calls at once, and the answer.
ANSWERS = (
    [("find_book", {"title": "Emmma"})],
    [("find_book", {"title": "Emma"}), ("opening_hours", {"day": "saturday"})],
    "Yes: Emma is on shelf B3, and on Saturday the library is open from 10:00 to 16:00.",
)


def main() -> None:
    """Ask one question that takes both tools."""
    logging.getLogger("lazyprompt").setLevel(logging.ERROR)  # a tool that fails is a warning with its traceback
    with provider(*ANSWERS) as connection:
        module = OnlineChatModule("openai", **connection)
        chat = module.prompt(PROMPTER).chat()
        print(f"reader: {QUESTION}")
        # The functions run between the answers. What they raise is sent to the model, which can try again.
        for step in chat.steps(QUESTION, tools=[find_book, opening_hours], max_rounds=5):
            if isinstance(step, Reply):
                for call in step.tool_calls:
                    print(
                        f"call:   {call.name}({', '.join(f'{name}={value!r}' for name, value in call.input.items())})"
                    )
            elif isinstance(step, ToolResultBlock):
                print(f"{'error: ' if step.is_error else 'result:'} {step.output}")
        print(f"answer: {chat.history[-1].text}")


if __name__ == "__main__":
    main()
