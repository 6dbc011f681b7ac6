"""Name patterns for model families, and for models that can only be rendered with their own chat template."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# Match only the start of a model name: "OpenHermes-2.5-Mistral" does not use Mistral's template.
# No letter, digit or version number may follow a match, so "llama-3" matches neither "llama-3b" nor "llama-3.1".
# The longest match wins; if two matches have equal lengths, the first pattern wins.
NAMES = (
    (r"qwen-?1[.-]5", "qwen1.5"),
    (r"qwen-?2(?:[.-]5)?-?vl", "qwen2.5-vl"),
    (r"qwen-?2[.-]5-math", "qwen2.5-math"),
    (r"qwen-?2[.-]5(?!-omni)", "qwen2.5"),
    (r"qwen-?2(?!-audio)", "qwen2"),
    (r"qwen-?3[.-]5(?=-(?:0[.-]8|2)b)", "qwen3.5-nothink"),  # thinking is off by default in the 0.8B and 2B models
    (r"qwen-?3[.-]5", "qwen3.5"),
    (r"qwen-?3[.-]6", "qwen3.6"),
    (r"qwen-?3-coder(?!-next)", "qwen3-coder"),
    (r"qwen-?3(?:-vl|-next)?(?=-.*thinking)", "qwen3-thinking-2507"),
    (r"qwen-?3(?:-vl|-next)?(?=-.*instruct)(?!-coder|-omni)", "qwen3-instruct-2507"),
    (r"qwen-?3(?=[-:]\d|\Z)", "qwen3"),
    (r"qwq(?!.*-preview)", "qwq"),
    (r"llama-?4(?=[-:]|\Z)", "llama-4"),
    (r"llama-?3[.-]1-nemotron-70b-instruct|nemotron:70b", "llama-3.1-nemotron"),
    (r"llama-?3[.-]1(?!.*nemotron)", "llama-3.1"),
    (r"llama-?3[.-]2(?:-\d+b)?-vision", "llama-3.2-vision"),
    (r"llama-?3[.-]2(?!.*nemotron)", "llama-3.2"),
    (r"llama-?3[.-]3(?!.*nemotron)", "llama-3.3"),
    (r"llama-?3(?!.*nemotron)", "llama-3"),
    (r"llama-?2|codellama-(?:7|13|34)b", "llama-2"),
    (r"mistral-7b(?:-instruct)?-v0[.-][12]|mixtral-8x7b(?:-instruct)?(?:-v0[.-]1)?", "mistral-v1"),
    (r"mistral-7b(?:-instruct)?-v0[.-]3|mistral-large-instruct-2407|mistral-small-instruct-2409", "mistral-v3"),
    (r"mistral-nemo|ministral-8b-instruct-2410", "mistral-nemo"),
    (r"mistral-large-instruct-2411", "mistral-v7"),
    (r"mistral-small-(?:3[.-][12]-)?24b-instruct-25\d\d|devstral-small-250[57]", "mistral-v7-tekken"),
    (r"ministral-3-\d+b-reasoning-2512", "mistral-v7-tekken"),
    (r"gemma-?4[-:](?:26|31)b", "gemma-4-31b"),
    (r"gemma-?4(?=[-:]e\d|\Z)", "gemma-4"),
    (r"gemma-?3n?", "gemma-3"),
    (r"gemma-?2", "gemma-2"),
    (r"(?:code)?gemma(?:-1[.-]1)?(?=[-:][27]b|\Z)", "gemma"),
    (r"phi-?3[.-]5(?!-vision)", "phi-3.5"),
    (r"phi-?3(?!-vision|-small)", "phi-3"),
    (r"phi-?4-mini", "phi-4-mini"),
    (r"phi-?4(?!-multimodal)", "phi-4"),
    (r"deepseek-r1-distill", "deepseek-r1-distill"),
    (r"deepseek-v3|deepseek-r1-0528", "deepseek-v3"),  # R1-0528 generates the opening <think> tag
    (r"deepseek-r1(?!-zero)", "deepseek-r1"),
    (r"deepseek-v3[.-]1", "deepseek-v3.1"),
    (r"deepseek-v2-chat-0628", "deepseek-v2-0628"),
    (r"deepseek-(?:coder-)?v2(?:-lite)?(?!.*-0\d{3})|deepseek-llm", "deepseek-v2"),
    (r"internlm-?3", "internlm3"),
    (r"internlm-?2(?:[.-]5)?", "internlm2"),
    (r"glm-?4[.-]7|glm-?5", "glm-4.7"),
    (r"glm-?4[.-][56]", "glm-4.5"),
    (r"(?:chat)?glm-?4(?!-voice)", "glm-4"),
    (r"chatglm-?3", "chatglm3"),
    (r"baichuan-?2", "baichuan2"),
    (r"yi-1[.-]5", "yi-1.5"),
    (r"yi(?=[-:]\d+b)|yi-coder", "yi"),
    (r"(?:c4ai-)?command-r(?:-plus)?|aya-expanse", "command-r"),
    (r"granite-?3[.-][0-3](?!.*(?:vision|guardian|speech))", "granite-3"),
    (r"granite-?4[.-]0(?!.*(?:vision|guardian|speech))", "granite-4"),
    (r"granite-?4[.-]1(?!.*(?:vision|guardian|speech))", "granite-4.1"),
    (r"smollm-?2", "smollm2"),
    (r"vicuna(?!.*-v0)", "vicuna"),
    (r"zephyr(?!.*gemma)|tinyllama(?:-1[.-]1b-chat-v1[.-]0|:1[.-]1b|\Z)", "zephyr"),
    (r"lfm-?2[.-]5(?!-vl|-audio)", "lfm2.5"),
    (r"lfm-?2(?!-vl|-audio)", "lfm2"),
    (r"kimi-k2(?:-instruct)?(?!-base)", "kimi-k2"),
    (r"kimi-k2-thinking", "kimi-k2-thinking"),
    (r"seed-oss", "seed-oss"),
    (r"minimax-m2", "minimax-m2"),
    (r"(?:nvidia-)?nemotron-nano-(?:9|12)b-v2", "nemotron-nano-2"),
    (r"olmo-?2", "olmo-2"),
    (r"(?:llama-3[.-]1-)?tulu-?3", "tulu-3"),
    (r"exaone-?3[.-]5", "exaone-3.5"),
    (r"exaone-deep", "exaone-deep"),
    (r"exaone-?4[.-]0", "exaone-4"),
    (r"openhermes-2(?:[.-]5)?", "chatml"),
    (r"nous-?hermes-?2-mixtral", "hermes-2"),
    (r"hermes-?3", "hermes-3"),
)

_EFFORT = "its system turn begins with the reasoning effort, followed by a separator only if there is system text"
_PREAMBLE = "its system turn begins with a fixed text, followed by a heading if there is system text"
_QUIET = "it writes a fixed system text, and drops or joins all other system texts"

# Maps each model with a chat template that markers can't express to a name pattern and the reason.
BEYOND = {
    "gpt-oss": (r"gpt-?oss", "its system turn contains the current date, and its responses are split into channels"),
    "SmolLM3": (r"smollm-?3", "its system turn contains the current date"),
    "Qwen3.8": (r"qwen-?3[.-]8", _EFFORT),
    "Command A, Command R7B": (r"(?:c4ai-)?command-(?:a|r7b)", _PREAMBLE),
    "Tiny Aya": (r"tiny-aya", _PREAMBLE),
    "Phi-4-reasoning": (r"phi-?4(?:-mini)?(?:-flash)?-reasoning", _QUIET),
    "Nemotron 3": (
        r"(?:nvidia-)?nemotron-3(?:[.-]5)?",
        "it strips white space after earlier responses, but keeps white space before them",
    ),
    "DeepSeek V2.5": (r"deepseek-(?:coder-)?v2[.-]5", "its prompt begins with one space for each system text"),
}

# Matches a publisher's name at the start of a file name, as in Qwen_Qwen2.5-7B-Instruct-Q4_K_M.gguf.
PUBLISHER = (
    r"(?:(?:01-ai|allenai|baichuan-inc|bytedance-seed|c4ai|cohereforai|coherelabs|deepseek-ai|google|huggingfaceh4"
    r"|huggingfacetb|ibm(?:-granite)?|internlm|lgai-exaone|liquidai|lmsys|meta(?:-llama)?|microsoft|minimaxai|mistralai"
    r"|moonshotai|nousresearch|nvidia|openai|qwen|teknium|thudm|tinyllama|zai-org)-)?"
)
_END = r"(?![a-z0-9]|\.\d)"


class Known(NamedTuple):
    """The lookup result for a known model.

    Args:
        family: The model's family; ``""`` if its template can't be expressed with markers.
        beyond: The reason why the template can't be expressed with markers; ``""`` if it can.
    """

    family: str
    beyond: str


def known(name: str) -> Known | None:
    """Find the family of a model.

    Args:
        name: The model's name, its repository, or the path of its file.

    Returns:
        The family, or the reason why markers can't express the model's template; None if the name is unknown.
    """
    # The name may be a path or a Hugging Face cache folder such as models--Qwen--Qwen2.5-7B-Instruct.
    model = bare(name)
    fitting = [(match.end(), found) for pattern, found in _patterns() if (match := pattern.match(model))]
    return max(fitting, key=lambda fit: fit[0])[1] if fitting else None


def bare(name: str) -> str:
    """Return a model's name without its path, in lower case, with hyphens in place of white space and underscores."""
    return re.sub(r"[\s_]+", "-", re.split(r"[/\\]|--", name.strip().lower().rstrip("/\\"))[-1])


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], Known], ...]:
    """Compile the patterns on first use, because compilation takes longer than importing all other modules."""
    table = [
        *((pattern, Known(family, "")) for pattern, family in NAMES),
        *((pattern, Known("", why)) for pattern, why in BEYOND.values()),
    ]
    return tuple((re.compile(f"{PUBLISHER}(?:{pattern}){_END}"), found) for pattern, found in table)
