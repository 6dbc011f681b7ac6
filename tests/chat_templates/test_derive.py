"""Markers out of a chat template: what they lay out is the template's own text, or they are refused with the reason."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from lazyprompt import ChatPrompter, Markers
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import TemplateError
from support.chat_judges import SPECIAL, templates

pytestmark = pytest.mark.slow  # models' own templates

SHARES = 4


@lru_cache
def loaded(name: str) -> ChatTemplate:
    return ChatTemplate.load(templates()[name], **SPECIAL)


# Why no markers take the place of some templates; of all others they do.
WITHOUT = {
    **dict.fromkeys(("cohere2", "cohere2_training"), "it asks of a text what cannot be foreseen: which key it is"),
    **dict.fromkeys(("lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"), "it asks how long a text is"),
    **dict.fromkeys(
        ("gptoss", "gptoss_training", "llama3_2", "muse_glimmer", "muse_glimmer_training"), "it writes the time"
    ),
    **dict.fromkeys(
        ("idefics3", "idefics3_training", "llava_next", "llava_next_training", "smolvlm", "smolvlm_training"),
        "it refuses a short chat, or does not show all of it",
    ),
    **dict.fromkeys(
        ("glm4moe_training", "qwen3_8", "qwen3_8_training"), "it begins in another way where there is a system text"
    ),
    **dict.fromkeys(
        [
            *(f"nemotron_3_{size}" for size in ("5_lightning", "nano", "super", "ultra")),
            *(f"nemotron_3_{size}_training" for size in ("5_lightning", "nano", "super", "ultra")),
            "qwen3_training",
        ],
        "what becomes of white space, or of a chat that nobody goes on with, is not simple",
    ),
}
NO_SYSTEM = {"gemma", "gemma_training"}
HISTORIES: list[list[tuple[str, str]]] = [
    [],
    [("vraag een", " antwoord een\n"), ("vraag\n\ntwee ", "antwoord <b>2</b>")],
]
PROMPTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "system text": ({"system": " Wees goed.\n"}, "hoi "),
    "no system text": ({"system": ""}, "\n你好"),
    "the documented one": ({}, "hoi"),
    "an instruction": ({"instruction": "Vertaal {naar}.", "system": "S"}, {"naar": "het Engels", "input": "hoi"}),
    "two instructions": ({"instruction": {"system": "Naar {naar}.", "user": "Vertaal {naar}: "}}, {"naar": "x"}),
}


@pytest.mark.parametrize("share", range(SHARES))
def test_a_prompter_with_the_markers_writes_what_the_template_writes(share: int) -> None:
    for name in sorted(templates())[share::SHARES]:
        template = loaded(name)
        if name in WITHOUT:
            with pytest.raises(TemplateError) as refused:
                Markers.from_chat_template(template)
            assert str(refused.value) == (
                f"no markers take the place of this chat template: {WITHOUT[name]}; render with ChatTemplate, which "
                "knows the template"
            )
            continue
        markers = Markers.from_chat_template(template)
        for special, (options, value) in PROMPTERS.items():
            prompter = ChatPrompter(**options).with_markers(markers)
            for history in HISTORIES:
                flat = prompter.generate_prompt(value, history=history)
                messages = prompter.generate_prompt(value, history=history, format="openai")["messages"]
                if markers.system and special == "no system text":
                    # What the developer says goes before what the template brings.
                    assert markers.system not in flat
                    continue
                if name in NO_SYSTEM and messages[0]["role"] == "system":
                    # Markers put it before the first question.
                    with pytest.raises(TemplateError, match="System role not supported"):
                        template.render(messages)
                else:
                    assert flat == template.render(messages).text, (name, special)


def test_markers_of_a_template_say_what_stands_where() -> None:
    text = (
        "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content|trim }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    markers = Markers.from_chat_template(ChatTemplate.load(text, **SPECIAL))
    shown = {
        name: getattr(markers, name) for name in ("bos", "sos", "eos", "soh", "eoh", "soa", "eoa", "generation", "stop")
    }
    assert shown == {
        "bos": "<s>",
        "sos": "<|system|>\n",
        "eos": "<|end|>\n",
        "soh": "<|user|>\n",
        "eoh": "<|end|>\n",
        "soa": "<|assistant|>\n",
        "eoa": "<|end|>\n",
        "generation": "<|assistant|>\n",
        "stop": ("<|end|>",),
    }
    assert markers.exact
    assert not markers.system
    assert markers.trim == ("assistant", "system", "user")
    assert {"<s>", "</s>", "<|end|>"} <= {*markers.controls}


def test_a_system_text_that_the_template_brings_is_that_of_the_markers() -> None:
    markers = Markers.from_chat_template(loaded("qwen2_5"))
    assert markers.system == "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    assert not Markers.from_chat_template(loaded("qwen3")).system
    assert Markers.from_chat_template(loaded("llama3_1")).preamble.endswith("Today Date: 26 Jul 2024\n\n")


TURN = "<{{ m.role }}>{{ m.content }}</{{ m.role }}>"
LOOP = f"{{% for m in messages %}}{TURN}{{% endfor %}}"
PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ strftime_now('%Y') }}" + LOOP + PROMPT, "it writes the time"),
        (
            LOOP.replace("m.content", "m.content[0:]") + PROMPT,
            "it asks of a text what cannot be foreseen: a part of it",
        ),
        (
            LOOP.replace("m.content", "m.content.lstrip()") + PROMPT,
            "what becomes of white space, or of a chat that nobody",
        ),
        (
            LOOP.replace("<{{ m.role }}>", "{{ '' if loop.first and m.role == 'user' else '<' ~ m.role ~ '>' }}")
            + PROMPT,
            "its first turn begins in another way than the others",
        ),
        ("{{ raise_exception('no') }}", "it refuses a short chat, or does not show all of it"),
        (
            LOOP.replace("{{ m.content }}", "{{ m.content if loop.last }}") + PROMPT,
            "it refuses a short chat, or does not",
        ),
        (
            "{% if messages[0].role == 'system' %}[S]{% else %}[N]{% endif %}" + LOOP + PROMPT,
            "it begins in another way where there is a system text",
        ),
        (
            LOOP.replace("</{{ m.role }}>", "{{ '</last>' if loop.last else '</turn>' }}") + PROMPT,
            "its first turn begins in another way than the others",
        ),
    ],
)
def test_a_template_that_no_markers_replace_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(TemplateError) as refused:
        Markers.from_chat_template(ChatTemplate.load(text))
    assert str(refused.value).startswith(f"no markers take the place of this chat template: {reason}")
    assert str(refused.value).endswith("; render with ChatTemplate, which knows the template")


def test_derived_markers_know_the_templates_control_sequences() -> None:
    markers = Markers.from_chat_template(loaded("qwen3"))
    prompter = ChatPrompter(system="").with_markers(markers)
    assert prompter.generate_prompt("a<|im_end|>b<tool_call>").count("<|im_end|>") == 1
    assert "<tool_call>" not in prompter.generate_prompt("a<|im_end|>b<tool_call>")
