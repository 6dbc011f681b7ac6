"""The rows of the table: the work, its limit, and the floor, which is the same result written by hand.

A floor uses f-strings and dict displays for just this prompt, without checks. This library and its peers are compared
with the same floors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from conversation_floors import HARMLESS, agent_chatml, agent_openai, anthropic, chatml, gemini, talk_openai
from shapes import DICT, FORGED, IMAGE, ORDERS, SHAPES, TEXT, forged_pairs, history, orders
from work import (
    MODEL,
    QUESTION,
    ROWS,
    SLOTS,
    SYSTEM,
    TOOLS,
    TOOLS_JSON,
    TURNS,
    Messages,
    conversation,
    prompt_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from shapes import Talk

FEW, MANY = 1_000, 5_000


class Work(NamedTuple):
    """A line of the table.

    Attributes:
        key: Its name for drivers and on the command line.
        name: Its name in the table.
        floor: The same result, written by hand.
        limit: The greatest ratio, or the most milliseconds over the floor.
        shapes: The shapes of conversation that it is timed with; the floor is called with each. The slowest counts.
        in_ms: True if the limit is in milliseconds.
    """

    key: str
    name: str
    floor: Callable[..., object]
    limit: float
    shapes: tuple[str, ...] = ()
    in_ms: bool = False


def three_slots() -> object:
    """One chat prompt with three slots, as a dict."""
    return _three_slots(SLOTS)


def _three_slots(values: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    role, context, question = values["role"], values["context"], values["question"]
    return {
        "messages": [
            {"role": "system", "content": f"You answer as {role}."},
            {"role": "user", "content": f"Context: {context}\nQuestion: {question}"},
        ]
    }


def alpaca(_: str) -> object:
    """Alpaca's prompt with one slot, as flat text; its value was given as text, or in a dict."""
    return (
        f"{SYSTEM}\nBelow is an instruction that describes a task, paired with extra messages such as input that "
        "provides further context if possible. Write a response that appropriately completes the request.\n\n"
        f" ### Instruction:\nWhen does it open? {SLOTS['context']}\n\n\n### Response:\n"
    )


def chat_dict() -> object:
    """Twenty turns and five tools, as a dict. Its tools are the developer's own: a floor copies nothing."""
    messages = [{"role": "system", "content": f"{SYSTEM}\nBe brief.\n\n"}]
    for question, answer in TURNS:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": "And now?"})
    return {"messages": messages, "tools": TOOLS}


def chat_flat() -> object:
    """Twenty turns and five tools, as flat text in the documents' own layout."""
    turns = "".join([f"<|Human|>:{question}<|Assistant|>:{answer}" for question, answer in TURNS])
    return (
        f"<|start_system|>{SYSTEM}Be brief.\n\n### Function-call Tools. \n\n{TOOLS_JSON}\n\n<|end_system|>\n\n"
        f"{turns}\n<|Human|>:\nAnd now?\n<|Assistant|>:\n"
    )


@lru_cache(maxsize=1)
def size() -> Callable[[str], int]:
    """How many tokens of o200k_base a text has; the vocabulary is where ``TIKTOKEN_CACHE_DIR`` says."""
    import tiktoken  # noqa: PLC0415 - only the rows of trimming need it

    encode = tiktoken.get_encoding("o200k_base").encode_ordinary
    return lambda text: len(encode(text))


@lru_cache(maxsize=8)
def half(count: int) -> int:
    """Half of the tokens of a conversation of so many messages, as OpenAI counts them: what it is to be cut to."""
    measured = size()
    return (3 + sum(3 + measured(each["role"]) + measured(each["content"]) for each in conversation(count))) // 2


def trimmed(count: int) -> Messages:
    """The system text and the newest messages that fit: one pass backwards, which counts only what it keeps."""
    messages, most, measured = conversation(count), half(count), size()
    roles = {role: measured(role) for role in ("system", "user", "assistant")}
    kept: Messages = []
    spent = 3 + 3 + roles["system"] + measured(messages[0]["content"])
    for message in reversed(messages[1:]):
        spent += 3 + roles[message["role"]] + measured(message["content"])
        if spent > most:
            break
        kept.append(message)
    return [messages[0], *reversed(kept)]


def prompt_file() -> object:
    """The messages of a prompt file: cut at its delimiters, its front matter read by PyYAML in C, ``str.replace``."""
    import yaml  # noqa: PLC0415 - only the rows of files need it

    with prompt_path().open(encoding="utf-8") as file:
        text = file.read()
    _, front, body = text.split("---\n", 2)
    fields = yaml.load(front, Loader=yaml.CSafeLoader)
    values = {each["name"]: each["default"] for each in fields["inputs"]} | QUESTION
    for name, value in values.items():
        body = body.replace("{{" + name + "}}", value)
    system, user = body.split("user:\n")
    return [
        {"role": "system", "content": system.removeprefix("system:\n").strip("\n")},
        {"role": "user", "content": user.strip("\n")},
    ]


@lru_cache(maxsize=1)
def dumps() -> Callable[[object], bytes]:
    """The JSON writer of bulk rows: orjson where it is installed, else json; the bytes are the same."""
    if find_spec("orjson") is not None:
        from orjson import dumps as quick  # noqa: PLC0415 - it need not be installed

        return quick
    plain = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda value: plain(value).encode()


def jsonl() -> object:
    """A thousand rows as the lines of an OpenAI Batch file."""
    write = dumps()
    return b"".join(
        [
            write(
                {
                    "custom_id": f"row-{number}",
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": {"model": MODEL, **_three_slots(row)},
                }
            )
            + b"\n"
            for number, row in enumerate(ROWS, 1)
        ]
    )


def run_python(code: str) -> None:
    """Run some code in a new interpreter, to its end."""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603 - our own code


def agent(floor: Callable[..., object], *, read: bool) -> Callable[[str], object]:
    """A floor of an agent's history, by its shape.

    Args:
        floor: The floor of a history.
        read: Arguments are objects, as in a Msg, and not text.
    """
    forged = FORGED if floor is agent_openai else HARMLESS
    histories = {shape: history(shape, forged=forged, read=read) for shape in SHAPES}
    return lambda shape: floor(histories[shape], read=read)


def providers() -> list[Work]:
    """Return the rows of payloads: from Msg, from OpenAI dicts, validated, and of every shape."""
    found: list[Work] = []
    for name, floor in (("anthropic", anthropic), ("gemini", gemini)):
        orders_floor, every = partial(floor, ORDERS), partial(_of_shape, floor)
        found += [
            Work(name, f"40 messages + tools -> {name}", orders_floor, 4.0),
            Work(f"{name} dicts", f"the same from dicts -> {name}", orders_floor, 6.0),
            Work(f"{name} judged", f"the same, validated -> {name}", orders_floor, 15.0),
            Work(f"{name} shapes", f"40 messages -> {name}, every shape", every, 4.0, SHAPES),
            Work(f"{name} dicts shapes", f"40 dicts -> {name}, every shape", every, 6.0, SHAPES),
        ]
    return found


def _of_shape(floor: Callable[[Talk], object], shape: str) -> object:
    return floor(orders(shape))


def agents() -> list[Work]:
    """Return the rows of an agent's history, from Msg and from OpenAI dicts."""
    # ChatML has no place for images.
    texts = tuple(shape for shape in SHAPES if shape != IMAGE)
    kinds = (("openai", "dict", agent_openai, SHAPES, 30.0), ("chatml", "ChatML", agent_chatml, texts, 12.0))
    return [
        Work(f"agent {key}{given}", f"agent history{comma} -> {form}, every shape", floor, limit, shapes)
        for key, form, make, shapes, from_dicts in kinds
        for given, comma, floor, limit in (
            ("", "", agent(make, read=True), 10.0),
            (" dicts", ", dicts", agent(make, read=False), from_dicts),
        )
    ]


# The aims are lower for some rows: 12 for three slots, 60 for Alpaca, 8 for 20 turns, 20 for a control sequence, 15 for
# an agent's dicts, 3 and 0.6 for trimming. They are missed since all messages are parsed and all payloads follow the
# rules.
WORK = (
    Work("slots", "3 slots -> dict", three_slots, 24.0),
    Work("alpaca", "Alpaca, 1 slot -> flat, safe", alpaca, 70.0, (TEXT, DICT)),
    Work("dict", "20 turns + 5 tools -> dict", chat_dict, 15.0),
    Work("flat", "20 turns + 5 tools -> flat, safe", chat_flat, 22.0),
    Work("chatml", "20 turns -> ChatML, safe", partial(chatml, TURNS), 17.0),
    Work("forged", "the same with a control sequence -> ChatML", partial(chatml, forged_pairs(HARMLESS)), 38.0),
    Work("talk", "a talk of 40 messages -> dict", talk_openai, 10.0),
    *providers(),
    *agents(),
    Work("trim few", f"trim {FEW:,} messages to half", partial(trimmed, FEW), 3.5),
    Work("trim many", f"trim {MANY:,} messages to half", partial(trimmed, MANY), 3.5),
    Work("trim few known", f"trim {FEW:,}, counts known", partial(trimmed, FEW), 0.8),
    Work("trim many known", f"trim {MANY:,}, counts known", partial(trimmed, MANY), 0.8),
    Work("file", "load + fill a .prompty", prompt_file, 4.0),
    Work("file kept", "the same out of a library, unchanged", prompt_file, 0.5),
    Work("jsonl", "1,000 rows -> OpenAI Batch JSONL", jsonl, 2.4),
    Work("import", "import of a prompter", partial(run_python, "pass"), 40.0, in_ms=True),
)
