"""A chat with a librarian: each answer streams, the history is kept, and a budget keeps the prompt short.

python -m pip install ".[openai]"            in a checkout
python examples/chat.py                      a conversation with a stand-in for the model
OPENAI_API_KEY=... python examples/chat.py   you write, the provider's model answers; an empty line ends it
"""

import os
from collections.abc import Iterable, Iterator

from lazyprompt import Budget, Chat, ChatPrompter, OnlineChatModule
from stand_in import provider

LIBRARIAN = ChatPrompter(
    "You are a librarian in {city}. Answer briefly, in the language of the question. "
    "The library is open from 10:00 to 16:00 on Saturday, and closed on Sunday.",
    system="",
)
QUESTIONS = ("My name is Ada. Are you open on Saturday?", "And on Sunday?", "What is my name?", "周六几点关门？")
ANSWERS = ("Yes, Ada: from 10:00 to 16:00.", "No, we are closed on Sunday.", "Your name is Ada.", "周六 16:00 关门。")


def talk(chat: Chat, questions: Iterable[str]) -> None:
    """Ask one question after the other, and print each answer while it streams."""
    for question in questions:
        print("librarian: ", end="")
        # `stream` sends the whole conversation so far, and adds this turn to it at its end.
        for piece in chat.stream(question):
            print(piece, end="", flush=True)
        print()


def typed() -> Iterator[str]:
    """Yield the lines that you write, up to an empty one."""
    while question := input("you:       "):
        yield question


def recorded() -> Iterator[str]:
    """Yield the questions that the stand-in has answers to."""
    for question in QUESTIONS:
        print(f"you:       {question}")
        yield question


def main() -> None:
    """Talk, and show how much the chat has kept."""
    with provider(*ANSWERS) as connection:
        module = OnlineChatModule("openai", budget=Budget(2000, reserve=500), **connection).prompt(LIBRARIAN)
        # The city is the same in all turns, so it is given once.
        chat = module.chat(values={"city": "Leeds"})
        talk(chat, typed() if os.environ.get("OPENAI_API_KEY") else recorded())
    print(f"{len(chat.history)} messages are in the history")


if __name__ == "__main__":
    main()
