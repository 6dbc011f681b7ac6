"""What is timed: the data that every contender is given, the same for this library and for its peers.

Nothing but the standard library is used here: peers are driven in environments in which this library is not installed.
"""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Messages = list[dict[str, str]]

SYSTEM = "You are an AI-Agent developed by LazyLLM."

# Twenty turns of about 280 characters a text, and five tools.
WORDS = "the order was sent on Monday and should arrive by Friday unless the depot is closed for the holiday "
TURNS: list[list[str]] = [[f"{i}: {WORDS * 3}"[:280], f"Answer {i}. {WORDS * 3}"[:280]] for i in range(20)]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{name}",
            "description": f"Look up {name} of an order.",
            "parameters": {
                "type": "object",
                "properties": {
                    "order": {"type": "string", "description": "The number of the order."},
                    "lines": {"type": "integer", "description": "How many lines to return."},
                },
                "required": ["order"],
            },
        },
    }
    for name in ("status", "address", "price", "customer", "history")
]
TOOLS_JSON = json.dumps(TOOLS, ensure_ascii=False)
SLOTS = {"role": "a librarian", "context": "The library opens at nine.", "question": "When does it open?"}
# The rows of a bulk job, and the model that it asks.
ROWS = [{**SLOTS, "question": f"When does it open on day {number}?"} for number in range(1_000)]
MODEL = "gpt-4o-mini"


_TEXT = """
the order was sent on Monday and should arrive by Friday unless depot is closed for holiday a customer asked about price
address status lines history please look up number again thank you very much
"""


@lru_cache(maxsize=8)
def conversation(count: int, words: int = 40) -> Messages:
    """So many messages of so many words, system text first; not to be changed."""
    dice = random.Random(count)  # noqa: S311 - the same in every run
    messages = [{"role": "system", "content": "You are a helpful clerk of a mail-order house."}]
    for number in range(count - 1):
        text = " ".join(dice.choices(_TEXT.split(), k=words))
        messages.append({"role": "assistant" if number % 2 else "user", "content": text})
    return messages


PROMPT_FILE = """---
name: order-help
description: Answers questions about orders.
metadata:
  authors:
    - support
model:
  id: gpt-4o
  provider: openai
  apiType: chat
  options:
    temperature: 0.7
    maxOutputTokens: 1000
inputs:
  - name: firstName
    kind: string
    default: Jane
  - name: lastName
    kind: string
    default: Doe
  - name: question
    kind: string
    default: Where is my order?
---
system:
You are an assistant of a shop who helps people with their orders.

# Customer
You are helping {{firstName}} {{lastName}}. Use their name to address them.

user:
{{question}}
"""
QUESTION = {"question": "When does it arrive?"}


@lru_cache(maxsize=1)
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="lazyprompt-benchmark-")


@lru_cache(maxsize=8)
def prompt_path(name: str = "order-help.prompty", text: str = PROMPT_FILE) -> Path:
    """Write the prompt file, or one in a peer's form, to a folder that the end of the process removes."""
    path = Path(_folder().name, name)
    path.write_text(text, encoding="utf-8")
    return path
