"""Conversations in the forms of models and providers, written by hand: the floors of the rows that have shapes.

Each is written for the shapes of shapes.py, and knows no other. It checks nothing; texts that are not safe are given to
it as they are to come out.
"""

from __future__ import annotations

import json
import marshal
from typing import TYPE_CHECKING, Any

from shapes import FORGED, NEXT, talk
from work import SYSTEM, TOOLS

if TYPE_CHECKING:
    from shapes import Talk

PACKED_TOOLS = marshal.dumps(TOOLS)
DEVELOPER = f"{SYSTEM}\nBe brief.\n\n"
# What no tokenizer takes for a marker.
HARMLESS = FORGED.replace("<|", "<\\|")


def anthropic(messages: Talk) -> object:
    """Messages with tools as Anthropic's payload."""
    payload: dict[str, Any] = {}
    made: list[dict[str, Any]] = []
    before = ""
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "system":
            payload["system"] = content
        elif role == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
            if before == "tool":
                made[-1]["content"].append(block)
            else:
                made.append({"role": "user", "content": [block]})
        elif message.get("tool_calls"):
            blocks: list[dict[str, Any]] = [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": json.loads(call["function"]["arguments"]),
                }
                for call in message["tool_calls"]
            ]
            if content:
                blocks.insert(0, {"type": "text", "text": content})
            made.append({"role": role, "content": blocks})
        elif role == before:
            made[-1]["content"] = [{"type": "text", "text": text} for text in (made[-1]["content"], content)]
        elif content.__class__ is list:
            url = content[1]["image_url"]["url"]
            source = {"type": "base64", "media_type": url[5:14], "data": url[22:]}
            blocks = [{"type": "text", "text": content[0]["text"]}, {"type": "image", "source": source}]
            made.append({"role": role, "content": blocks})
        else:
            made.append({"role": role, "content": content})
        before = role
    payload["messages"] = made
    payload["tools"] = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
        for one in (tool["function"] for tool in marshal.loads(PACKED_TOOLS))  # noqa: S302 - our own bytes
    ]
    return payload


def gemini(messages: Talk) -> object:
    """Messages with tools as Gemini's payload."""
    payload: dict[str, Any] = {}
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    before = ""
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "system":
            payload["system_instruction"] = content
        elif role == "tool":
            call_id = message["tool_call_id"]
            answer = {"id": call_id, "name": names[call_id], "response": {"output": content}}
            if before == "tool":
                contents[-1]["parts"].append({"function_response": answer})
            else:
                contents.append({"role": "user", "parts": [{"function_response": answer}]})
        elif message.get("tool_calls"):
            parts: list[dict[str, Any]] = [{"text": content}] if content else []
            for call in message["tool_calls"]:
                function = call["function"]
                names[call["id"]] = function["name"]
                arguments = json.loads(function["arguments"])
                parts.append({"function_call": {"id": call["id"], "name": function["name"], "args": arguments}})
            contents.append({"role": "model", "parts": parts})
        elif role == before:
            contents[-1]["parts"].append({"text": content})
        elif content.__class__ is list:
            url = content[1]["image_url"]["url"]
            picture = {"inline_data": {"mime_type": url[5:14], "data": url[22:]}}
            contents.append({"role": "user", "parts": [{"text": content[0]["text"]}, picture]})
        else:
            contents.append({"role": "model" if role == "assistant" else "user", "parts": [{"text": content}]})
        before = role
    payload["contents"] = contents
    declarations = [
        {"name": one["name"], "description": one["description"], "parameters_json_schema": one["parameters"]}
        for one in (tool["function"] for tool in marshal.loads(PACKED_TOOLS))  # noqa: S302 - our own bytes
    ]
    payload["tools"] = [{"function_declarations": declarations}]
    return payload


def agent_openai(messages: Talk, *, read: bool) -> object:
    """An agent's history as OpenAI's dict, all of it new.

    Args:
        messages: The history.
        read: Arguments are objects, as in a Msg, and not text.
    """
    made: list[dict[str, Any]] = [{"role": "system", "content": DEVELOPER}]
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            one = {"role": "tool", "tool_call_id": message["tool_call_id"], "content": content}
        elif message.get("tool_calls"):
            calls = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False)
                        if read
                        else call["function"]["arguments"],
                    },
                }
                for call in message["tool_calls"]
            ]
            one = {"role": "assistant", "content": content, "tool_calls": calls}
        elif content.__class__ is list:
            url = {"url": content[1]["image_url"]["url"]}
            parts = [{"type": "text", "text": content[0]["text"]}, {"type": "image_url", "image_url": url}]
            one = {"role": role, "content": parts}
        else:
            one = {"role": role, "content": content}
        # The name of a tool's message is the tool's, which OpenAI's form does not have.
        if "name" in message and role != "tool":
            one["name"] = message["name"]
        made.append(one)
    made.append({"role": "user", "content": NEXT})
    return {"messages": made}


def agent_chatml(messages: Talk, *, read: bool) -> object:
    """The same in ChatML. Names have no place there.

    Args:
        messages: The history.
        read: Arguments are objects, as in a Msg, and not text.
    """
    made = [f"<|im_start|>system\n{DEVELOPER}<|im_end|>\n"]
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            made.append(f"<|im_start|>user\n<tool_response>\n{content}\n</tool_response><|im_end|>\n")
        elif message.get("tool_calls"):
            lines = [content] if content else []
            for call in message["tool_calls"]:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                # A chat template is given the arguments as an object, and writes them itself.
                arguments = json.dumps(arguments if read else json.loads(arguments), ensure_ascii=False)
                lines.append(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>')
            said = "\n".join(lines)
            made.append(f"<|im_start|>assistant\n{said}<|im_end|>\n")
        else:
            made.append(f"<|im_start|>{role}\n{content}<|im_end|>\n")
    made.append(f"<|im_start|>user\n{NEXT}<|im_end|>\n<|im_start|>assistant\n")
    return "".join(made)


def talk_openai() -> object:
    """Forty plain messages as OpenAI's dict, all of it new."""
    messages = [{"role": message["role"], "content": message["content"]} for message in talk()]
    return {
        "messages": [
            {"role": "system", "content": DEVELOPER},
            *messages,
            {"role": "user", "content": NEXT},
        ]
    }


def chatml(pairs: list[list[str]]) -> object:
    """Return pairs of question and answer in ChatML, without tools."""
    turns = "".join(
        [
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
            for question, answer in pairs
        ]
    )
    return (
        f"<|im_start|>system\n{DEVELOPER}<|im_end|>\n{turns}<|im_start|>user\n{NEXT}<|im_end|>\n<|im_start|>assistant\n"
    )
