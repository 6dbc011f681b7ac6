"""Layouts of model families: system text in a user turn, and histories that begin with another role than the user."""

from typing import Any

import pytest

from lazyprompt import ChatPrompter, Msg, ToolResultBlock
from lazyprompt.rendering.layout import last_question

GEMMA = "<bos><start_of_turn>user\nS\n\n"
NEXT, END = "<end_of_turn>\n<start_of_turn>", "<end_of_turn>\n<start_of_turn>model\n"
LLAMA = "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\n"


@pytest.mark.parametrize(
    ("family", "roles", "text"),
    [
        ("gemma-3", "", f"{GEMMA}Q{END}"),
        ("gemma-3", "-", f"<bos><start_of_turn>user\nS{END}"),
        ("gemma-3", "ua", f"{GEMMA}u0{NEXT}model\na1{NEXT}user\nQ{END}"),
        ("gemma-3", "au", f"{GEMMA}{NEXT}model\na0{NEXT}user\nu1{NEXT}user\nQ{END}"),
        ("gemma-3", "au-", f"{GEMMA}{NEXT}model\na0{NEXT}user\nu1{END}"),
        ("gemma-3", "su", f"{GEMMA}s0\n\nu1{NEXT}user\nQ{END}"),
        ("llama-2", "ua", f"{LLAMA}u0 [/INST] a1 </s><s>[INST] Q [/INST]"),
        ("llama-2", "au", f"{LLAMA} [/INST] a0 </s><s>[INST] u1 [/INST]<s>[INST] Q [/INST]"),
        ("mistral-v1", "au-", "<s> [INST] S\n\n [/INST] a0</s> [INST] u1 [/INST]"),
        ("mistral-v3", "", "<s>[INST] S\n\nQ[/INST]"),
        ("mistral-v3", "uau-", "<s>[INST] u0[/INST] a1</s>[INST] S\n\nu2[/INST]"),
        ("mistral-v3", "au", "<s> a0</s>[INST] u1[/INST][INST] S\n\nQ[/INST]"),
        ("mistral-v3", "ua-", "<s>[INST] S\n\nu0[/INST] a1</s>"),
    ],
)
def test_system_text_is_written_into_a_user_turn(family: str, roles: str, text: str) -> None:
    """If the history begins with a response, the system text has its own user turn ("-": a call without an input)."""
    names = {"u": "user", "a": "assistant", "s": "system"}
    history = [{"role": names[role], "content": f"{role}{at}"} for at, role in enumerate(roles.rstrip("-"))]
    given = None if roles.endswith("-") else {"input": "Q"}
    prompt = ChatPrompter("", system="S").with_markers(family).render(given, history)
    assert prompt.text == text
    assert [part for part, slot in zip(prompt.parts, prompt.slots, strict=True) if slot == "system" and part] == ["S"]


def find(text: str) -> str:
    """Find a text."""
    return text


LLAMA_4 = "<|eot|><|header_start|>assistant<|header_end|>\n\n"
USER_4 = "<|header_start|>user<|header_end|>\n\n"
SYSTEM_4 = "<|header_start|>system<|header_end|>\n\n"
LATER_TURNS = f" a1 <|eot|>{USER_4} u2 {LLAMA_4}"
NOTE = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
NOTE += "Today Date: 26 Jul 2024\n\n"
EOT, OPENING = "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n"
CHATML = "<|im_end|>\n<|im_start|>assistant\n"
SECOND_SYSTEM = f"{EOT}<|start_header_id|>system<|end_header_id|>\n\ns1{EOT}{OPENING}"


@pytest.mark.parametrize(
    ("family", "roles", "tools", "text", "answer"),
    [
        ("llama-4", "uau", [find], f"u0{LLAMA_4}{LATER_TURNS}", "B<|eot|>"),
        ("llama-4", "uau", [], f"<|begin_of_text|>{USER_4} u0 {LLAMA_4}{LATER_TURNS}", "B<|eot|>"),
        ("llama-4", "Ssu", [find], f"<|eot|>{SYSTEM_4} s1 <|eot|>{USER_4} u2 {LLAMA_4}", "B<|eot|>"),
        ("llama-3.1", "ss", [], f"{NOTE}s0{SECOND_SYSTEM}", f"B{EOT}"),
        ("llama-3.1", "Ss", [], f"{NOTE}S{SECOND_SYSTEM}", f"B{EOT}"),
        ("deepseek-v3", "ss", [], "<｜begin▁of▁sentence｜> s0 \n\n s1 <｜Assistant｜>", "B<｜end▁of▁sentence｜>"),
        ("qwq", "u", [], f"<|im_start|>user\n u0 {CHATML}<think>\n", "B<|im_end|>\n"),
        ("qwen2.5", "eu", [], f"<|im_start|>system\n<|im_end|>\n<|im_start|>user\n u1 {CHATML}", "B<|im_end|>\n"),
        ("mistral-v1", "eu", [], "<s> [INST]  u1  [/INST]", " B</s>"),
        ("vicuna", "u", [], "USER:  u0  ASSISTANT:", " B</s>"),
    ],
)
def test_history_layout_of_model_families(family: str, roles: str, tools: list[Any], text: str, answer: str) -> None:
    """Only the first text after tools is stripped; one system text (S: the prompter's, e: empty) opens the prompt."""
    names = {"u": "user", "a": "assistant", "s": "system", "e": "system"}
    texts = [(role, [{"type": "text", "text": f" {role}{at} " * (role != "e")}]) for at, role in enumerate(roles)]
    history = [{"role": names[role], "content": content} for role, content in texts if role != "S"]
    prompter = ChatPrompter("", system="S" if "S" in roles else "").with_markers(family)
    prompt = prompter.render(None, history, tools)
    assert str(prompt).rpartition("\n}\n\n")[2] == text
    assert ("tools" in prompt.slots) == bool(tools)
    assert prompter.training_sample(None, "B", history, tools).text == f"{prompt}{answer}"


def test_last_question_is_the_last_user_message_without_tool_results() -> None:
    question, result = Msg("user", "q", "user"), Msg("user", [ToolResultBlock("c", "f", "1")], "user")
    histories = [
        [],
        [result],
        [question, result],
        [result, question, Msg("assistant", "a", "assistant"), question, result],
    ]
    assert [last_question(history) for history in histories] == [0, 0, 0, 3]
