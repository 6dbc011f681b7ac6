"""litellm: messages in OpenAI's form as a provider's, and its trimmer."""

from __future__ import annotations

import copy
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import conversation_floors
from driven import Does, drive
from floors import FEW, half
from work import ORDERS, SYSTEM, TURNS, conversation

if TYPE_CHECKING:
    from collections.abc import Callable

factory: Any = import_module("litellm.litellm_core_utils.prompt_templates.factory")
MARKERS = {
    role: {"pre_message": f"<|im_start|>{role}\n", "post_message": "<|im_end|>\n"}
    for role in ("system", "user", "assistant")
}


def chatml() -> Callable[[], object]:
    """Twenty turns with markers of one's own."""
    messages = [{"role": "system", "content": f"{SYSTEM}\nBe brief.\n\n"}]
    for one, other in TURNS:
        messages += [{"role": "user", "content": one}, {"role": "assistant", "content": other}]
    messages.append({"role": "user", "content": "And now?"})
    return lambda: factory.custom_prompt(
        role_dict=MARKERS, messages=messages, final_prompt_value="<|im_start|>assistant\n"
    )


def anthropic() -> Callable[[], object]:
    """Its messages; system text and tools are put beside them elsewhere. It changes what it is given."""
    return lambda: factory.anthropic_messages_pt(copy.deepcopy(ORDERS[1:]), "claude-sonnet-4", "anthropic")


def anthropic_whole(made: list[dict[str, Any]]) -> object:
    """Its messages with the floor's system text and tools, texts not in blocks."""
    wanted: Any = conversation_floors.anthropic(ORDERS)
    messages = [
        {
            "role": each["role"],
            "content": each["content"][0]["text"]
            if isinstance(each["content"], list) and each["content"][0]["type"] == "text" and len(each["content"]) == 1
            else each["content"],
        }
        for each in made
    ]
    return {"system": wanted["system"], "messages": messages, "tools": wanted["tools"]}


def gemini() -> Callable[[], object]:
    """The same for Gemini."""
    convert: Any = import_module("litellm.llms.vertex_ai.gemini.transformation")._gemini_convert_messages_with_history  # noqa: SLF001 - what its client calls
    return lambda: convert(messages=copy.deepcopy(ORDERS[1:]))


def gemini_whole(made: list[dict[str, Any]]) -> object:
    """Its contents with the floor's system text and tools; it leaves ids out, and has results as another object."""
    wanted: Any = conversation_floors.gemini(ORDERS)
    contents = [{"role": each["role"], "parts": [_part(part) for part in each["parts"]]} for each in made]
    ids = iter([call["id"] for message in ORDERS for call in message.get("tool_calls", ())])
    for each in contents:
        for part in each["parts"]:
            for key in ("function_call",):
                if key in part:
                    part[key] = {"id": next(ids), **part[key]}
    answered = iter([message["tool_call_id"] for message in ORDERS if message["role"] == "tool"])
    for each in contents:
        for part in each["parts"]:
            if "function_response" in part:
                part["function_response"] = {"id": next(answered), **part["function_response"]}
    return {"system_instruction": wanted["system_instruction"], "contents": contents, "tools": wanted["tools"]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if "function_call" in part:
        call = part["function_call"]
        return {"function_call": {"name": call["name"], "args": call["args"]}}
    if "function_response" in part:
        answer = part["function_response"]
        given = answer["response"]
        output = given.get("output", given.get("content"))
        return {"function_response": {"name": answer["name"], "response": {"output": output}}}
    return part


def trim(count: int) -> Callable[[], object]:
    """Its trimmer with its own counter, which counts all messages anew for each one that goes."""
    trim_messages: Any = import_module("litellm.utils").trim_messages
    given, most = conversation(count), half(count)
    return lambda: trim_messages([dict(each) for each in given], model="gpt-4o", max_tokens=most, trim_ratio=1.0)


if __name__ == "__main__":
    apart = "system text and tools are put in elsewhere"
    drive(
        "litellm",
        [
            Does("chatml", chatml),
            Does("anthropic dicts", anthropic, anthropic_whole, apart),
            Does(
                "gemini dicts", gemini, gemini_whole, "and Gemini's calls come without their ids, which Gemini allows"
            ),
            Does("trim few", partial(trim, FEW)),
        ],
        "it has no slots and no .prompty",
    )
