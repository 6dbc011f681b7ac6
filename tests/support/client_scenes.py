"""What the tests of clients share: answers, faults, and the contents of messages and their deltas."""

import gc
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lazyprompt.answers.parser import Delta
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock, ToolUseBlock
from support.model_server.server import Answer, Seen

KEY = "sk-a-secret-that-never-shows"
TIMEOUT = 30.0
WEATHER = {"type": "function", "function": {"name": "weather", "description": "the weather in a city"}}
CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("c1", "weather", {"city": "Paris", "days": [1, {"a": None}]}),
    ("c2", "weather", {}),
)
ANSWERS = (
    Answer("pong"),
    Answer("一、二 🎈 drei", prompt_tokens=7, completion_tokens=5),
    Answer("so", thinking="hm, 等等"),
    Answer("", calls=CALLS),
    Answer("let me see", thinking="which city?", calls=CALLS),
    Answer("", thinking="only thought"),
    Answer("cut", finish="length"),
    Answer("no", finish="refusal"),
    Answer("stopped", finish="content_filter"),
    Answer("", finish="content_filter"),
)
WHOLE = Answer("Hello, how are you?", thinking="I greet back", calls=CALLS)


def opened_sockets() -> int:
    """The sockets of this process, those of the server among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # about sockets of other tests: here, sockets are counted
        gc.collect()
    links = Path("/proc/self/fd").iterdir()
    return sum(1 for link in links if link.is_symlink() and "socket:" in str(link.readlink()))


def until(true: Callable[[], bool], seconds: float = TIMEOUT) -> bool:
    """Whether something becomes true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def said_in(deltas: list[Delta]) -> tuple[str, str, list[tuple[str | None, str | None, Any]]]:
    """The reasoning, the text and the tool calls that deltas add up to."""
    text, thoughts = ("".join(each.text for each in deltas if each.kind == kind) for kind in ("text", "thinking"))
    calls: dict[int, list[Delta]] = {}
    for delta in deltas:
        if delta.kind == "tool_call":
            assert delta.index is not None
            calls.setdefault(delta.index, []).append(delta)
    assert list(calls) == list(range(len(calls)))
    for pieces in calls.values():
        assert [piece.name for piece in pieces[1:]] == [None] * (len(pieces) - 1)
    return (
        thoughts,
        text,
        [(each[0].id, each[0].name, json.loads("".join(one.text for one in each))) for each in calls.values()],
    )


def said_by(msg: Msg) -> tuple[str, str, list[tuple[str | None, str | None, Any]]]:
    """The same of a message."""
    blocks = (TextBlock(msg.content),) if isinstance(msg.content, str) else msg.content
    return (
        "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock)),
        "".join(block.text for block in blocks if isinstance(block, TextBlock)),
        [(block.id, block.name, block.input) for block in blocks if isinstance(block, ToolUseBlock)],
    )


def echo(seen: Seen) -> Answer:
    """An answer that repeats the last message."""
    return Answer(text=json.dumps(seen.payload)[-60:])
