"""The system text of families that write it into a user turn, beside histories that begin with an answer."""

from __future__ import annotations

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
def test_the_system_text_is_in_a_user_turn(family: str, roles: str, text: str) -> None:
    """Without a user turn at the beginning, it has one of its own; "-" ends a call without an input."""
    names = {"u": "user", "a": "assistant", "s": "system"}
    history = [{"role": names[role], "content": f"{role}{at}"} for at, role in enumerate(roles.rstrip("-"))]
    given = None if roles.endswith("-") else {"input": "Q"}
    assert ChatPrompter("", system="S").with_markers(family).generate_prompt(given, history) == text


def test_the_last_question_has_no_results() -> None:
    question, result = Msg("user", "q", "user"), Msg("user", [ToolResultBlock("c", "f", "1")], "user")
    talks = [[], [result], [question, result], [result, question, Msg("assistant", "a", "assistant"), question, result]]
    assert [last_question(talk) for talk in talks] == [0, 0, 0, 3]
