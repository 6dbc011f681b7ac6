"""The table of all rows: what is done, the ratio to reach, and the same result written by hand, which is the floor.

A floor is what one would write with f-strings and dict displays for just this prompt. It checks nothing and knows no
other prompt. The rows are those of the design; this library and its peers are held against the same functions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from conversation_floors import HARMLESS, agent_chatml, agent_openai, anthropic, forged_chatml, gemini, talk_openai
from shapes import DICT, FORGED, IMAGE, SHAPES, TEXT, history, orders
from work import (
    MODEL,
    ORDERS,
    QUESTION,
    ROWS,
    SLOTS,
    SYSTEM,
    TOOLS,
    TOOLS_JSON,
    TURNS,
    Messages,
    conversation,
    prompt_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 1_000, 5_000


class Work(NamedTuple):
    """One line of the table, whoever does it.

    Attributes:
        key: What drivers know it by.
        name: What the table calls it.
        floor: The same written by hand.
        target: What is to be reached: a ratio, or milliseconds over the floor; None where a row is only looked at.
        measure: Which of the two.
        shapes: The shapes of conversation that it is done with, each of which the floor is called with; the slowest
            stands for all. None where there is only one.
    """

    key: str
    name: str
    floor: Callable[..., object]
    target: float | None
    measure: Literal["ratio", "more ms"] = "ratio"
    shapes: tuple[str, ...] = ()


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


def chatml() -> object:
    """Twenty turns in ChatML, the form of the Qwen models, tools left out."""
    turns = "".join(
        [
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
            for question, answer in TURNS
        ]
    )
    return (
        f"<|im_start|>system\n{SYSTEM}\nBe brief.\n\n<|im_end|>\n{turns}"
        f"<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
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

    with prompt_folder().file.open(encoding="utf-8") as file:
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


def every_anthropic(shape: str) -> object:
    """Forty messages of that shape as Anthropic's payload."""
    return anthropic(orders(shape))


def every_gemini(shape: str) -> object:
    """Forty messages of that shape as Gemini's payload."""
    return gemini(orders(shape))


def agent(floor: Callable[..., object], *, read: bool) -> Callable[[str], object]:
    """A floor of an agent's history, by its shape.

    Args:
        floor: The floor of a history.
        read: Arguments are objects, as in a Msg, and not text.
    """
    forged = FORGED if floor is agent_openai else HARMLESS
    histories = {shape: history(shape, forged=forged, read=read) for shape in SHAPES}
    return lambda shape: floor(histories[shape], read=read)


# ChatML has no place for images.
TEXT_SHAPES = tuple(shape for shape in SHAPES if shape != IMAGE)
WORK = (
    Work("slots", "3 slots -> dict", three_slots, 8.0),
    Work("alpaca", "Alpaca, 1 slot -> flat, safe", alpaca, 30.0, shapes=(TEXT, DICT)),
    Work("dict", "20 turns + 5 tools -> dict", chat_dict, 4.2),
    Work("flat", "20 turns + 5 tools -> flat, safe", chat_flat, 5.0),
    Work("chatml", "20 turns -> ChatML, safe", chatml, 4.0),
    Work("forged", "the same with a control sequence -> ChatML", forged_chatml, 12.0),
    Work("talk", "a talk of 40 messages -> dict", talk_openai, 10.0),
    Work("anthropic", "40 messages + tools -> anthropic", partial(anthropic, ORDERS), 2.0),
    Work("anthropic dicts", "the same from dicts -> anthropic", partial(anthropic, ORDERS), 3.5),
    Work("anthropic judged", "the same, validated -> anthropic", partial(anthropic, ORDERS), 8.0),
    Work("anthropic shapes", "40 messages -> anthropic, every shape", every_anthropic, 2.0, shapes=SHAPES),
    Work("anthropic dicts shapes", "40 dicts -> anthropic, every shape", every_anthropic, 3.5, shapes=SHAPES),
    Work("gemini", "40 messages + tools -> gemini", partial(gemini, ORDERS), 2.0),
    Work("gemini dicts", "the same from dicts -> gemini", partial(gemini, ORDERS), 5.5),
    Work("gemini judged", "the same, validated -> gemini", partial(gemini, ORDERS), 8.0),
    Work("gemini shapes", "40 messages -> gemini, every shape", every_gemini, 2.0, shapes=SHAPES),
    Work("gemini dicts shapes", "40 dicts -> gemini, every shape", every_gemini, 5.5, shapes=SHAPES),
    Work("agent openai", "agent history -> dict, every shape", agent(agent_openai, read=True), 8.0, shapes=SHAPES),
    Work(
        "agent openai dicts",
        "agent history, dicts -> dict, every shape",
        agent(agent_openai, read=False),
        12.0,
        shapes=SHAPES,
    ),
    Work(
        "agent chatml", "agent history -> ChatML, every shape", agent(agent_chatml, read=True), 8.0, shapes=TEXT_SHAPES
    ),
    Work(
        "agent chatml dicts",
        "agent history, dicts -> ChatML, every shape",
        agent(agent_chatml, read=False),
        8.0,
        shapes=TEXT_SHAPES,
    ),
    Work("trim few", f"trim {FEW:,} messages to half", partial(trimmed, FEW), None),
    Work("trim many", f"trim {MANY:,} messages to half", partial(trimmed, MANY), 2.0),
    Work("trim few known", f"trim {FEW:,}, counts known", partial(trimmed, FEW), None),
    Work("trim many known", f"trim {MANY:,}, counts known", partial(trimmed, MANY), 0.3),
    Work("file", "load + fill a .prompty", prompt_file, 3.0),
    Work("file kept", "the same out of a library, unchanged", prompt_file, 0.3),
    Work("jsonl", "1,000 rows -> OpenAI Batch JSONL", jsonl, 2.0),
    Work("import", "import of a prompter", partial(run_python, "pass"), 40.0, "more ms"),
)
