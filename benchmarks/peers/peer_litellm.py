"""litellm: OpenAI's messages as a provider's, and flat text with markers of one's own."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import drive
from shapes import ORDERS
from work import SYSTEM, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

factory: Any = import_module("litellm.litellm_core_utils.prompt_templates.factory")
MARKERS = {
    role: {"pre_message": f"<|im_start|>{role}\n", "post_message": "<|im_end|>\n"}
    for role in ("system", "user", "assistant")
}


def chatml() -> Callable[[], object]:
    """Prepare twenty turns."""
    messages = [{"role": "system", "content": f"{SYSTEM}\nBe brief.\n\n"}]
    for one, other in TURNS:
        messages += [{"role": "user", "content": one}, {"role": "assistant", "content": other}]
    messages.append({"role": "user", "content": "And now?"})
    return lambda: factory.custom_prompt(
        role_dict=MARKERS, messages=messages, final_prompt_value="<|im_start|>assistant\n"
    )


def anthropic() -> Callable[[], object]:
    """Prepare Anthropic's messages, without system text and tools. The function changes its arguments."""
    return lambda: factory.anthropic_messages_pt(copy.deepcopy(ORDERS[1:]), "claude-sonnet-4", "anthropic")


def gemini() -> Callable[[], object]:
    """Prepare Gemini's contents, without system text and tools."""
    convert: Any = import_module("litellm.llms.vertex_ai.gemini.transformation")._gemini_convert_messages_with_history  # noqa: SLF001 - the function that its client calls
    return lambda: convert(messages=copy.deepcopy(ORDERS[1:]))


if __name__ == "__main__":
    drive("litellm", {"chatml": chatml, "anthropic dicts": anthropic, "gemini dicts": gemini})
