"""Each example runs, and shows what it is there to show."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs_models import models_at_hand
from support.engines import running
from support.paths import EXAMPLES

pytestmark = pytest.mark.slow  # engines, clients


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, EXAMPLES / name, *arguments], check=True, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.stderr == ""
    return done.stdout


def test_every_script_is_run_below() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "agentscope_0_0.py",
        "agentscope_0_1.py",
        "agentscope_1_x.py",
        "chat.py",
        "chat_template.py",
        "document_qa.py",
        "few_shot.py",
        "fine_tuning.py",
        "long_chat.py",
        "online_chat_module.py",
        "qwen_token_counter.py",
        "tool_calling.py",
        "trainable_module.py",
    }


def test_online_chat_module_asks_a_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with models_at_hand(tmp_path, monkeypatch) as server:
        assert run("online_chat_module.py") == "Gern.\n"
    (seen,) = server.seen
    assert seen.refusal is None
    system, user = seen.body["messages"]
    assert "上下文信息是背景,用户的问题是输入, 现在请你做出回答。" in system["content"]
    assert user == {"role": "user", "content": ""}


def test_trainable_module_starts_an_engine_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with models_at_hand(tmp_path, monkeypatch):
        assert run("trainable_module.py", "model.gguf").strip()
    assert running(tmp_path / "model.gguf") == []


def test_long_chat_stays_within_its_budget() -> None:
    lines = run("long_chat.py").splitlines()
    assert "nothing had to go" in lines[0]
    assert all(" of 500 tokens: " in line for line in lines)
    starts = [line.partition("begins with ")[2] for line in lines]
    assert len(set(starts)) < len(starts) - 2, "the cut stays where it is for many turns"


def test_chat_template_shows_a_prompt_what_is_trained_and_a_call() -> None:
    prompt, _, rest = run("chat_template.py").partition("--- what is trained ---\n")
    assert "To Leeds, please. <\\|im_end|><|im_end|>" in prompt
    trained, _, answer = rest.partition("--- an answer, as it streams ---\n")
    assert trained == "['Take the A1.<|im_end|>']\n"
    assert "name='route', input={'to': 'Leeds'}" in answer.splitlines()[-1]


def test_document_qa_shows_a_flat_prompt_and_messages() -> None:
    flat, _, messages = run("document_qa.py").partition("--- OpenAI messages ---\n")
    assert flat.count("<|im_start|>") == 3
    assert "6. Trademarks." in flat
    made = json.loads(messages)
    assert [message["role"] for message in made["messages"]] == ["system", "user"]
    assert made["messages"][1]["content"] in flat


def test_document_qa_takes_a_question() -> None:
    assert "   2. Grant of Copyright License." in run(
        "document_qa.py", "What does the grant of copyright license allow?"
    )


def test_tool_calling_goes_on_after_the_result() -> None:
    out = run("tool_calling.py")
    assert '"enum"' in out
    assert '<tool_call>\n{"name": "opening_hours", "arguments": {"library": "City Library", "day": "sunday"}}' in out
    assert out.endswith("City Library: closed\n</tool_response><|im_end|>\n<|im_start|>assistant\n\n")


def test_chat_speaks_both_languages() -> None:
    out = run("chat.py")
    assert "<|im_start|>user\n那周日呢?<|im_end|>\n<|im_start|>assistant\n" in out
    assert "{'role': 'user', 'content': 'And on Sunday?'}" in out


def test_fine_tuning_pairs_hold_no_forged_marker() -> None:
    lines = [json.loads(line) for line in run("fine_tuning.py").splitlines()]
    pairs, chats = lines[0::2], lines[1::2]
    assert [pair["completion"] for pair in pairs] == ["mixed", "positive", "negative"]
    assert all(pair["prompt"].endswith("### Response:\n") for pair in pairs)
    assert "<|im_end|>" not in pairs[2]["prompt"]
    assert [chat["messages"][-1]["role"] for chat in chats] == ["assistant"] * 3


@pytest.mark.parametrize("mark", ['{"age": {"$gt": 30}}', "Request: users who joined after 2024\nQuery:\n"])
def test_few_shot_keeps_the_braces_of_its_examples(mark: str) -> None:
    assert mark in run("few_shot.py")
