"""The model families: for each the markers, with all the spacing of the model's own chat template."""

from __future__ import annotations

from functools import lru_cache

from lazyprompt.text.markers import Markers

_CHATML = Markers(
    sos="<|im_start|>system\n",
    eos="<|im_end|>\n",
    soh="<|im_start|>user\n",
    eoh="<|im_end|>\n",
    soa="<|im_start|>assistant\n",
    eoa="<|im_end|>\n",
    stop=("<|im_end|>",),
    exact=True,
)

_QWEN = _CHATML.evolve(
    soe="<|im_start|>user\n<tool_response>\n",
    eoe="\n</tool_response><|im_end|>\n",
    result_join="\n</tool_response>\n<tool_response>\n",
    tool_start='<tool_call>\n{"name": "',
    tool_args='", "arguments": ',
    tool_end="}\n</tool_call>",
    tools=(
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
    tool_join="\n",
)

FAMILIES: dict[str, Markers] = {
    "chatml": _CHATML,
    "qwen2.5": _QWEN.evolve(system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
}


def family_of(name: str) -> Markers:
    """The markers of a model's family."""
    return FAMILIES[name]


@lru_cache(maxsize=1)
def known_sequences() -> frozenset[str]:
    """The control sequences of all families together."""
    return frozenset[str]().union(*(markers.control_sequences for markers in FAMILIES.values()))
