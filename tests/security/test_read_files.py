"""Files are read only if they are regular and not too large: nothing waits, nothing fills the memory."""

import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import (
    Chat,
    ChatTemplate,
    HuggingFaceTokenCounter,
    ImageBlock,
    OnlineChatModule,
    PromptLibrary,
    Prompty,
    TiktokenCounter,
    TrainableModule,
)
from lazyprompt.batch.rows import fingerprint, read_rows
from lazyprompt.errors import LazyPromptError, TokenizerError
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.modules.llamacpp_server import main as serve
from lazyprompt.studio.workspace import Workspace
from security.test_case_files import run_in_process
from security.test_written_files import end
from support.memory import peak_of
from support.tiny_model import CHATML, write_model

HUGE = 1_500_000_000
VOCABULARY: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
}


def on_the_command_line(*arguments: str) -> None:
    """Run a command; one line says what is wrong, and is raised."""
    ran = run_in_process(*arguments)
    if ran.status:
        raise LazyPromptError(ran.out + ran.err)


def load_directory(path: Path) -> ChatTemplate:
    return ChatTemplate.load(path.parent)


def count_directory(path: Path) -> HuggingFaceTokenCounter:
    return HuggingFaceTokenCounter(path.parent)


def trainable(path: Path) -> None:
    with TrainableModule(str(path.parent), url="http://127.0.0.1:1") as module:
        module.payload("hi")


def trained_tokenizer(path: Path) -> None:
    with TrainableModule(str(path.parent), url="http://127.0.0.1:1", markers="chatml") as module:
        assert module.tokenizer is not None


def saved_chat(path: Path) -> None:
    try:
        Chat(OnlineChatModule("openai", model="m", api_key="k")).load(path)
    except OSError as error:
        raise LazyPromptError(f"{path}: {error.strerror}") from error


# What reads, and the name of the file.
WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "template": (load_directory, "chat_template.jinja"),
    "template by name": (ChatTemplate.load, "own.jinja"),
    "more templates": (lambda path: ChatTemplate.load(path.parents[1]), "additional_chat_templates/rag.jinja"),
    "configuration": (load_directory, "tokenizer_config.json"),
    "map of tokens": (load_directory, "special_tokens_map.json"),
    "GGUF": (ChatTemplate.load, "model.gguf"),
    "tokenizer": (count_directory, "tokenizer.json"),
    "tokenizer's configuration": (count_directory, "tokenizer_config.json"),
    "tokenizer's template": (count_directory, "chat_template.jinja"),
    "vocabulary": (lambda path: TiktokenCounter("o200k_base", bpe_file=path), "o200k_base.tiktoken"),
    "local model": (trainable, "chat_template.jinja"),
    "local model's tokenizer": (trained_tokenizer, "tokenizer.json"),
    "prompty": (Prompty.load, "x.prompty"),
    "prompt file": (PromptFile.load, "x.yaml"),
    "library": (lambda path: PromptLibrary(path.parent).get("x"), "x.prompty"),
    "workspace": (lambda path: Workspace(path.parent).read(path.name), "x.prompty"),
    "conversation": (saved_chat, "chat.json"),
    "image": (ImageBlock.from_file, "x.png"),
    "history of a command": (
        lambda path: on_the_command_line("render", "--history", str(path), "--input", "x"),
        "x.json",
    ),
    "tools of a command": (lambda path: on_the_command_line("render", "--tools", str(path), "--input", "x"), "x.json"),
    "input of a command": (lambda path: on_the_command_line("render", "--input", f"@{path}"), "x.txt"),
    "prompt of a command": (lambda path: on_the_command_line("render", str(path), "--input", "x"), "x.yaml"),
    "checked template": (lambda path: on_the_command_line("check-template", str(path)), "own.jinja"),
    "checked tokenizer": (lambda path: on_the_command_line("check-template", str(path.parent)), "tokenizer.json"),
    "checked prompt": (lambda path: on_the_command_line("check", str(path)), "x.prompty"),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def place(tmp_path: Path, way: str) -> Path:
    """The file that is read, which is not there yet, among all that a reader needs beside it."""
    path = tmp_path / "model" / WAYS[way][1]
    path.parent.mkdir(parents=True)
    directory = tmp_path / "model"
    (directory / "tokenizer.json").write_text(json.dumps(VOCABULARY))
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    path.unlink(missing_ok=True)
    return path


def refusal(way: str, path: Path) -> str:
    """What the error says; it comes by itself."""
    error = end(WAYS[way][0], path)
    assert isinstance(error, LazyPromptError), error or "it is read"
    return str(error)


@EVERY_WAY
def test_a_pipe_is_refused(place: Path, way: str) -> None:
    """The naive version ``path.read_text()`` waits for somebody to write into it."""
    os.mkfifo(place)
    told = refusal(way, place)
    assert "not a regular file" in told or "no prompt" in told
    assert place.name in told or way == "library"


@EVERY_WAY
def test_a_link_to_a_device_is_refused(place: Path, way: str) -> None:
    """The naive version reads ``/dev/zero`` until the memory is full."""
    place.symlink_to("/dev/zero")
    told = refusal(way, place)
    assert "the path is a device, not a regular file" in told or "not a prompt" in told or "no prompt" in told


@EVERY_WAY
def test_a_socket_and_a_directory_are_refused(place: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(place.name)
        told = refusal(way, place)
        assert "is a socket" in told or "No such device" in told or "not a prompt" in told or "no prompt" in told
    place.unlink()
    place.mkdir()
    if way not in {"checked prompt", "checked template", "template by name", "GGUF"}:  # which take directories, too
        told = refusal(way, place)
        assert "is a directory" in told or "not a prompt" in told or "no prompt" in told


@EVERY_WAY
def test_a_file_of_a_gigabyte_and_a_half_is_refused_before_it_is_read(place: Path, way: str) -> None:
    place.touch()
    os.truncate(place, HUGE)
    told: list[str] = []
    assert peak_of(lambda: told.append(refusal(way, place))) < 60_000_000
    # A GGUF file may be as large as a model is.
    assert way == "GGUF" or "file is too large: 1,500,000,000 bytes; the limit is " in told[0]


@pytest.mark.parametrize("way", ["template", "configuration", "tokenizer", "tokenizer's template", "local model"])
def test_a_link_to_a_regular_file_is_followed(tmp_path: Path, place: Path, way: str) -> None:
    """As the caches of Hugging Face have it: a snapshot is a directory of links to blobs."""
    contents = {"tokenizer.json": json.dumps(VOCABULARY), "tokenizer_config.json": "{}", "chat_template.jinja": CHATML}
    for number, (name, content) in enumerate(contents.items()):
        (tmp_path / f"blob{number}").write_text(content)
        (place.parent / name).unlink(missing_ok=True)
        (place.parent / name).symlink_to(f"../blob{number}")
    WAYS[way][0](place)


@pytest.mark.parametrize("way", ["template"])
def test_a_hundred_templates_together_are_bounded(place: Path) -> None:
    more = place.parent / "additional_chat_templates"
    more.mkdir()
    for number in range(4):
        (more / f"{number}.jinja").write_text("{#" + "x" * 5_000_000 + "#}")
    with pytest.raises(
        TokenizerError, match=r"3.jinja cannot be read: file is too large: 5,000,004 bytes; the limit is 1,777,204"
    ):
        ChatTemplate.load(place.parent)


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 40), "too many fields or tensors: .*; the limit is 65,536"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 60, 1), "too many fields or tensors: .*; the limit is 65,536"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 100_000), "too many fields or tensors: .*; the limit is 65,536"),
        (
            struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"a", 9, 8, 100_000_000),
            "a list is too long: 100,000,000 items; the limit is 4,194,304",
        ),
        (struct.pack("<4sIQQQ24sI", b"GGUF", 3, 0, 1, 23, b"tokenizer.chat_template\0", 8), "GGUF"),
    ],
)
def test_a_gguf_file_that_says_that_it_holds_much_is_refused(tmp_path: Path, head: bytes, told: str) -> None:
    """The package gguf makes an object for each of them: 1.5 GB of zeros become a hundred million."""
    path = tmp_path / "model.gguf"
    path.write_bytes(head)
    os.truncate(path, HUGE)
    with pytest.raises(TokenizerError, match=told):
        ChatTemplate.load(path)


def test_a_template_in_a_gguf_file_is_bounded(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", {"default": CHATML + "{#" + "x" * 17_000_000 + "#}"}, weights=False)
    with pytest.raises(
        TokenizerError, match=r"chat_template is too long: 17,\d+,\d+ characters; the limit is 16,777,216"
    ):
        ChatTemplate.load(path)


def test_rows_from_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    for read in (fingerprint, read_rows):
        with pytest.raises(LazyPromptError, match=r"rows.jsonl .*not a regular file"):
            read(tmp_path / "rows.jsonl")


def test_an_engine_waits_for_no_pipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert serve(["--model", str(tmp_path / "m.gguf"), "--port", "0"]) == 1
    assert "the path is a pipe, not a regular file" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/fd for pipes")
def test_what_the_shell_has_opened_is_read() -> None:
    """As ``--history <(jq . chat.json)`` is: the shell names a pipe of this very process."""
    reading, writing = os.pipe()
    os.write(writing, b'[["Hi", "Ho"]]')
    os.close(writing)
    on_the_command_line("render", "--history", f"/dev/fd/{reading}", "--input", "x")
    os.close(reading)


def test_without_the_abilities_of_posix_a_pipe_is_refused_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
        monkeypatch.delattr(os, flag, raising=False)
    monkeypatch.setattr(os, "supports_dir_fd", set())
    os.mkfifo(tmp_path / "x.prompty")
    with pytest.raises(LazyPromptError, match="is a pipe"):
        Prompty.load(tmp_path / "x.prompty")
    with pytest.raises(LazyPromptError, match="is a pipe"):
        Prompty.loads("---\nmetadata: {a: '${file:x.prompty}'}\n---\n", tmp_path)
    (tmp_path / "x.prompty").unlink()
    (tmp_path / "x.prompty").write_text("user:\nhi")
    assert Prompty.load(tmp_path / "x.prompty").render() == "user:\nhi"
