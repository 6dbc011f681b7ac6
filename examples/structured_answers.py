"""Structured answers: what customers write becomes objects of a class, and a wrong answer is asked for again.

python -m pip install ".[openai]"                          in a checkout
python examples/structured_answers.py                      with a stand-in for the model
OPENAI_API_KEY=... python examples/structured_answers.py   with a provider's model
"""

from typing import Literal

from pydantic import BaseModel, Field

from lazyprompt import ChatPrompter, ModuleError, OnlineChatModule
from stand_in import provider


class Ticket(BaseModel):
    """The class of the answers; its JSON schema goes to the model."""

    topic: Literal["payment", "delivery", "other"]
    urgent: bool = Field(description="True if the customer loses money or time today.")
    orders: list[str] = Field(description="The order numbers that the message names.")


MESSAGES = (
    "I paid twice for A-17, please help today!",
    "Where are A-20 and A-21? No hurry.",
    "Your shop is lovely. 谢谢！",
)
ANSWERS = (
    '{"topic": "payment", "urgent": true, "orders": ["A-17"]}',
    '{"topic": "shipping", "urgent": false, "orders": ["A-20", "A-21"]}',  # "shipping" is no topic
    '{"topic": "delivery", "urgent": false, "orders": ["A-20", "A-21"]}',
    '{"topic": "other", "urgent": false, "orders": []}',
)


def sort(module: OnlineChatModule, message: str, attempts: int = 2) -> Ticket:
    """Return the ticket of a message; an answer that is no ticket is asked for again."""
    try:
        return Ticket.model_validate(module(message, response_format=Ticket).parsed)
    except ModuleError as error:
        # Other kinds are a wrong key, a lost connection and the like: asking again does not help.
        if error.kind != "invalid" or attempts == 1:
            raise
        print(f"  again: {error.partial}")
        return sort(module, message, attempts - 1)


def main() -> None:
    """Sort three messages."""
    with provider(*ANSWERS) as connection:
        module = OnlineChatModule("openai", **connection).prompt(ChatPrompter("Sort what customers write.", system=""))
        for message in MESSAGES:
            print(message)
            ticket = sort(module, message)
            print(f"  {ticket.topic}, {'urgent' if ticket.urgent else 'not urgent'}, orders: {ticket.orders or 'none'}")


if __name__ == "__main__":
    main()
