"""The table of all rows: what is done, the ratio to reach, and the same result written by hand, which is the floor.

A floor is what one would write with f-strings and dict displays for just this prompt. It checks nothing and knows no
other prompt. The rows are those of the design; this library and its peers are held against the same functions.
"""

from __future__ import annotations

import json
import marshal
import subprocess
import sys
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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

PACKED_TOOLS = marshal.dumps(TOOLS)
FEW, MANY = 1_000, 5_000


class Work(NamedTuple):
    """One line of the table, whoever does it.

    Attributes:
        key: What drivers know it by.
        name: What the table calls it.
        floor: The same written by hand.
        target: What is to be reached: a ratio, or milliseconds over the floor; None where a row is only looked at.
        measure: Which of the two.
    """

    key: str
    name: str
    floor: Callable[[], object]
    target: float | None
    measure: Literal["ratio", "more ms"] = "ratio"


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


def anthropic() -> object:
    """Forty messages with tools as Anthropic's payload."""
    payload: dict[str, Any] = {}
    messages: list[dict[str, Any]] = []
    before = ""
    for message in ORDERS:
        role = message["role"]
        if role == "system":
            payload["system"] = message["content"]
        elif role == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if before == "tool":
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
        elif message.get("tool_calls"):
            content = [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": json.loads(call["function"]["arguments"]),
                }
                for call in message["tool_calls"]
            ]
            messages.append({"role": role, "content": content})
        else:
            messages.append({"role": role, "content": message["content"]})
        before = role
    payload["messages"] = messages
    payload["tools"] = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
        for one in (tool["function"] for tool in marshal.loads(PACKED_TOOLS))  # noqa: S302 - our own bytes
    ]
    return payload


def gemini() -> object:
    """Forty messages with tools as Gemini's payload."""
    payload: dict[str, Any] = {}
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    before = ""
    for message in ORDERS:
        role = message["role"]
        if role == "system":
            payload["system_instruction"] = message["content"]
        elif role == "tool":
            call_id = message["tool_call_id"]
            answer = {"id": call_id, "name": names[call_id], "response": {"output": message["content"]}}
            if before == "tool":
                contents[-1]["parts"].append({"function_response": answer})
            else:
                contents.append({"role": "user", "parts": [{"function_response": answer}]})
        elif message.get("tool_calls"):
            parts = []
            for call in message["tool_calls"]:
                function = call["function"]
                names[call["id"]] = function["name"]
                arguments = json.loads(function["arguments"])
                parts.append({"function_call": {"id": call["id"], "name": function["name"], "args": arguments}})
            contents.append({"role": "model", "parts": parts})
        else:
            contents.append(
                {"role": "model" if role == "assistant" else "user", "parts": [{"text": message["content"]}]}
            )
        before = role
    payload["contents"] = contents
    declarations = [
        {"name": one["name"], "description": one["description"], "parameters_json_schema": one["parameters"]}
        for one in (tool["function"] for tool in marshal.loads(PACKED_TOOLS))  # noqa: S302 - our own bytes
    ]
    payload["tools"] = [{"function_declarations": declarations}]
    return payload


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


WORK = (
    Work("slots", "3 slots -> dict", three_slots, 5.0),
    Work("dict", "20 turns + 5 tools -> dict", chat_dict, 4.0),
    Work("flat", "20 turns + 5 tools -> flat, safe", chat_flat, 4.0),
    Work("chatml", "20 turns -> ChatML, safe", chatml, 4.0),
    Work("anthropic", "40 messages + tools -> anthropic", anthropic, 1.3),
    Work("anthropic dicts", "the same from dicts -> anthropic", anthropic, 2.0),
    Work("anthropic judged", "the same, validated -> anthropic", anthropic, 8.0),
    Work("gemini", "40 messages + tools -> gemini", gemini, 1.3),
    Work("gemini dicts", "the same from dicts -> gemini", gemini, 2.0),
    Work("gemini judged", "the same, validated -> gemini", gemini, 8.0),
    Work("trim few", f"trim {FEW:,} messages to half", partial(trimmed, FEW), None),
    Work("trim many", f"trim {MANY:,} messages to half", partial(trimmed, MANY), 2.0),
    Work("trim few known", f"trim {FEW:,}, counts known", partial(trimmed, FEW), None),
    Work("trim many known", f"trim {MANY:,}, counts known", partial(trimmed, MANY), 0.3),
    Work("file", "load + fill a .prompty", prompt_file, 3.0),
    Work("file kept", "the same out of a library, unchanged", prompt_file, 0.3),
    Work("jsonl", "1,000 rows -> OpenAI Batch JSONL", jsonl, 1.5),
    Work("import", "import of a prompter", partial(run_python, "pass"), 40.0, "more ms"),
)
