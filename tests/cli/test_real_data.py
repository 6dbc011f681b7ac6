"""Common formats of data sets and chat templates, with ``lazyprompt batch`` and ``check-template``."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cli.helpers import Ran, Run, write
from lazyprompt.cli.main import main

CHAT = "type: chat\nsystem: ''\ninstruction: ''\n"
KTO = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Go away."}], "label": False}


def batch(run: Run, folder: Path, name: str, data: str, *options: str, prompt: str = CHAT) -> Ran:
    write(folder / "chat.yaml", prompt)
    write(folder / name, data)
    return run("batch", "chat.yaml", name, "-o", "out.jsonl", *options)


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


RESPONSE = {"role": "assistant", "content": "Hello"}
TRAINED = ("--format", "train-trl", "--column", "history=messages")


def test_kto_rating_is_not_used_as_the_response(run: Run, tmp_path: Path) -> None:
    """A row of KTO trained the text "False", and masked the real answer."""
    assert batch(run, tmp_path, "kto.jsonl", json.dumps(KTO), *TRAINED).status == 0
    assert lines(tmp_path) == [
        {
            "prompt": [{"role": "user", "content": "Hi"}],
            "completion": [{"role": "assistant", "content": "Go away."}],
            "label": False,
        }
    ]


@pytest.mark.parametrize("label", [RESPONSE, [RESPONSE]])
def test_label_may_be_a_message_or_a_list_of_one_message(run: Run, tmp_path: Path, label: object) -> None:
    """A label as TRL's ``completion``, a list of one message, was refused."""
    user_messages = [{"role": "user", "content": "Hi"}]
    row = {"messages": user_messages, "label": label}
    assert batch(run, tmp_path, "rows.jsonl", json.dumps(row), *TRAINED).status == 0
    assert lines(tmp_path) == [{"prompt": user_messages, "completion": [RESPONSE]}]


def test_json_array_of_rows_is_read(run: Run, tmp_path: Path) -> None:
    """A JSON array of rows was refused, with advice that did not help."""
    row = {"messages": [{"role": "user", "content": "Hi"}, RESPONSE]}
    assert batch(run, tmp_path, "rows.json", json.dumps([row, row]), *TRAINED).status == 0
    assert lines(tmp_path) == [{"prompt": row["messages"][:1], "completion": row["messages"][1:]}] * 2


def test_sharegpt_conversations_are_read_as_messages(run: Run, tmp_path: Path) -> None:
    row = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}], "images": ["a.png"]}
    options = ("--format", "train-trl", "--column", "history=conversations")
    batch(run, tmp_path, "rows.jsonl", json.dumps(row), *options)
    assert lines(tmp_path) == [
        {"prompt": [{"role": "user", "content": "Hi"}], "completion": [{"role": "assistant", "content": "Hello"}]}
    ]


def test_error_suggests_the_column_that_contains_messages(run: Run, tmp_path: Path) -> None:
    ran = batch(run, tmp_path, "rows.jsonl", json.dumps(KTO), "--format", "train-trl")
    assert (
        "the rows have 'messages' and 'label'; if 'messages' contains messages, use --column history=messages"
        in ran.err.replace("'messages', 'label'", "'messages' and 'label'")
    )


def test_column_without_a_name_is_ignored(run: Run, tmp_path: Path) -> None:
    """The first column of pandas, which has no name, made the file unreadable."""
    prompt = "type: chat\nsystem: ''\ninstruction: Say {x}.\n"
    ran = batch(run, tmp_path, "rows.csv", ",x\n0,a\n1,b\n", "--format", "openai", prompt=prompt)
    assert ran.status == 0
    assert [each["payload"]["messages"][0]["content"] for each in lines(tmp_path)] == ["Say a.\n\n", "Say b.\n\n"]


BARE = "{{ bos_token + '' }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'].strip() + eos_token }}{% endfor %}"


@pytest.mark.parametrize("options", [(), ("--bos-token", "<b>", "--eos-token", "<e>")])
def test_template_that_concatenates_its_tokens_is_checked(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    """A template that adds its tokens to text failed, and was reported to support no system text."""
    ran = run("check-template", write(tmp_path / "bare.jinja", BARE), "--json", *options)
    found = {each["name"]: each for each in json.loads(ran.out)}
    end = "<e>" if options else "</s>"
    assert found["system text supported"]["holds"] is True
    assert found["stop token trained"] == {"name": "stop token trained", "holds": True, "detail": f"{end!r}"}


def test_standard_output_may_be_a_text_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``main()`` in a program whose standard output has no ``buffer`` ended in a traceback."""
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    status = main(["render", write(tmp_path / "a.prompty", "user:\nHi"), "--model", "chatml"])
    assert (status, out.getvalue()) == (0, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
