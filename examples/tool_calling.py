"""Tools from Python functions: described for the model, and a call with its result in the next prompt.

python examples/tool_calling.py
"""

import json
from datetime import date
from typing import Literal

from lazyprompt import ChatPrompter


def opening_hours(library: str, day: Literal["weekday", "saturday", "sunday"] = "weekday") -> str:
    """Look up when a library is open.

    Args:
        library: The name of the library.
        day: The kind of day.
    """
    hours = {"weekday": "9:00-20:00", "saturday": "10:00-16:00", "sunday": "closed"}
    return f"{library}: {hours[day]}"


def days_until(when: date) -> int:
    """Count the days from the first of January of that year.

    Args:
        when: The day.
    """
    return (when - date(when.year, 1, 1)).days


prompter = ChatPrompter("Answer from the tools, not from memory.", tools=[opening_hours, days_until], system="")


def main() -> None:
    """Print the first prompt, and the one after a tool was called."""
    question = "Is the City Library open on Sunday?"
    print(json.dumps(prompter.generate_prompt(question, return_dict=True), indent=2))

    # What an online model answers is the OpenAI form; it goes into the history as it is.
    history: list[dict[str, object]] = [
        {"role": "user", "content": question},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {
                        "name": "opening_hours",
                        "arguments": '{"library": "City Library", "day": "sunday"}',
                    },
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": opening_hours("City Library", "sunday")},
    ]
    # The history ends with a tool's result, so nobody speaks now: the assistant goes on.
    print(prompter.generate_prompt(history=history, model="qwen2.5"))


if __name__ == "__main__":
    main()
