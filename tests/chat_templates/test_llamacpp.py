"""Models' own chat templates: the prompt that llama.cpp, which has a Jinja of its own, would give the model.

transformers is the first reference. Where llama.cpp differs from it, the table below lists the difference; with only
that change, our prompt is the same byte for byte.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3

from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import ANSWER, ARGUMENTS, CONVERSATIONS, TOOLS, USER, call, result, templates
from support.tiny_model import CHATML, SPECIAL, LlamaCpp, llama_cpp, write_model

pytestmark = pytest.mark.slow  # an engine

Chat = list[dict[str, Any]]
Answer = tuple[str | None, str]


def in_openai_form(chat: Chat) -> Chat:
    """A chat whose calls have their arguments as JSON."""
    arguments = json.dumps(ARGUMENTS, ensure_ascii=False)
    return [
        message | {"tool_calls": [call(at, arguments) for at, _ in enumerate(message["tool_calls"], 1)]}
        if "tool_calls" in message
        else message
        for message in chat
    ]


_THOUGHT = {"role": "assistant", "content": "", "reasoning_content": "so", "tool_calls": [call(1)]}
_THINKING: tuple[Chat, Chat] = ([USER, ANSWER | {"reasoning_content": "hm"}, USER, _THOUGHT, result(1, "rain")], TOOLS)
_COMMON = ("plain", "turns", "system", "tools", "system and tools", "calls", "two calls, no content", "reasoning")
CHATS = {
    special: (in_openai_form(messages), tools)
    for special, (messages, tools) in (
        *((special, CONVERSATIONS[special]) for special in (*_COMMON, "assistant first", "two of one")),
        ("thinking and calls", _THINKING),
    )
}
# Variables that both get if the template uses them; llama.cpp has defaults of its own for these.
VARIABLES = {"enable_thinking": True, "date_string": "26 Jul 2024"}
WAYS: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": False}, {"add_generation_prompt": False})


class Peculiarity(NamedTuple):
    """A difference between llama.cpp and transformers."""

    what: str
    templates: frozenset[str]  # templates with the difference
    chats: frozenset[str]  # chats with the difference
    to_chat: Callable[[Chat], Chat] = list  # the same change of our messages
    to_text: Callable[[str], str] = str  # the same change of our text


def without_system(chat: Chat) -> Chat:
    system, first, *others = chat
    return [first | {"content": f"{system['content']}\n{first['content']}"}, *others]


def without_null(chat: Chat) -> Chat:
    return [message | {"content": message["content"] or ""} for message in chat]


def results_in_calls(chat: Chat) -> Chat:
    """Calls, their results and the response in one message."""
    chat = without_null(chat)
    at = next(at for at, message in enumerate(chat) if "tool_calls" in message)
    results = [parse_result(message) for message in chat if message["role"] == "tool"]
    after = chat[at + 1 + len(results) :]
    answer = after.pop(0)["content"] if after else ""
    return [*chat[:at], chat[at] | {"tool_responses": results, "content": answer}, *after]


def parse_result(message: dict[str, Any]) -> dict[str, Any]:
    """A result, parsed if it is JSON."""
    content = message["content"]
    return {"name": message["name"], "response": json.loads(content) if content.startswith("{") else content}


_CALLS = frozenset(("calls", "two calls, no content", "thinking and calls"))
PECULIARITIES = (
    Peculiarity(
        "the system message goes before the user's text where the template refuses it",
        frozenset(("gemma",)),
        frozenset(("system", "system and tools", "two calls, no content")),
        to_chat=without_system,
    ),
    Peculiarity(
        "a content that is null becomes empty, and the template shows calls only where it is null",
        frozenset(("deepseek_r1_distill",)),
        _CALLS,
        to_text=lambda text: re.sub(
            "<｜tool▁calls▁begin｜>.*?(?=<｜tool▁outputs▁begin｜>)", "<｜end▁of▁sentence｜>", text, flags=re.DOTALL
        ),
    ),
    Peculiarity(
        "None is written as nothing",
        frozenset(("gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4")),
        _CALLS,
        to_text=lambda text: text.replace("unit:None}", "unit:}"),
    ),
    Peculiarity(
        "results go into the message that calls, which the template knows too; those that are JSON are read",
        frozenset(("gemma4_v2",)),
        _CALLS,
        to_chat=results_in_calls,
    ),
)


def names() -> list[str]:
    """The templates that models are prompted with; the others are for training."""
    return sorted(name for name in templates() if not name.endswith("_training"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", {"default": CHATML})


def llama_cpps(server: LlamaCpp, chat: Chat, tools: Chat | None, way: dict[str, Any]) -> Answer:
    """The prompt that llama.cpp renders, or None and the reason."""
    variables = VARIABLES | way
    options = {"add_generation_prompt": variables.pop("add_generation_prompt", True)}
    if tools:
        options["tools"] = tools
    text, reason = server.prompt(chat, chat_template_kwargs=variables, **options)
    return text, reason.rpartition("Jinja Exception: ")[2]


def ours(
    name: str, chat: Chat, tools: Chat | None, way: dict[str, Any], peculiarities: Iterable[Peculiarity]
) -> Answer:
    """Our prompt with the peculiarities of llama.cpp, or None and the reason."""
    text = templates()[name]
    asked: dict[str, Any] = {variable: value for variable, value in VARIABLES.items() if variable in text}
    asked |= {option: value for option, value in way.items() if option not in VARIABLES or option in asked}
    for peculiarity in peculiarities:
        chat = peculiarity.to_chat(chat)
    template = ChatTemplate.load(text, bos_token=SPECIAL["bos"], eos_token=SPECIAL["eos"])
    try:
        # One of the chats contains <think> as text.
        made = template.render(chat, tools, safety="off", **asked).text
    except TemplateError as error:
        return None, str(error)
    for peculiarity in peculiarities:
        made = peculiarity.to_text(made)
    return made, ""


def same(one: Answer, theirs: Answer) -> bool:
    return one[0] == theirs[0] and theirs[1] in one[1]


def compare_templates(model: Path, share: Iterable[str]) -> tuple[dict[str, tuple[Answer, Answer]], list[str]]:
    """The prompts that differ, and the peculiarities without an effect."""
    different: dict[str, tuple[Answer, Answer]] = {}
    idle: list[str] = []
    for name in share:
        with llama_cpp(model, templates()[name]) as server:
            for special, (chat, tools) in CHATS.items():
                known = [item for item in PECULIARITIES if name in item.templates and special in item.chats]
                for way in WAYS:
                    theirs = llama_cpps(server, chat, tools, way)
                    made = ours(name, chat, tools, way, known)
                    where = f"{name}, {special}, {way}"
                    if not same(made, theirs):
                        different[where] = (made, theirs)
                    for item in known:
                        others = [other for other in known if other is not item]
                        if same(ours(name, chat, tools, way, others), theirs):
                            idle.append(f"{where}: {item.what}")
    return different, idle


# The number of tests for all templates.
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
def test_prompt_equals_the_prompt_of_llama_cpp(model: Path, share: int) -> None:
    assert len(names()) > 40
    day = today()
    found = compare_templates(model, names()[share::SHARES])
    if today() != day:
        found = compare_templates(model, names()[share::SHARES])
    assert found == ({}, [])


def today() -> date:
    return date.today()  # noqa: DTZ011 - the local time, as in llama.cpp


def test_peculiarities_name_existing_templates_and_chats() -> None:
    assert [item for item in PECULIARITIES if not (item.templates <= set(names()) and item.chats <= set(CHATS))] == []


def test_llama_cpp_server_is_stopped_after_its_context(model: Path) -> None:
    with llama_cpp(model) as server:
        assert server.prompt([USER])[0] == str(ChatTemplate.load(CHATML).render([USER]))
    with pytest.raises(urllib3.exceptions.HTTPError):
        server.prompt([USER])
