"""Files are read only if they are regular and not too large: reading neither blocks nor fills the memory."""

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
from security.test_written_files import run_to_end
from support.memory import peak_of
from support.tiny_model import CHATML, write_model

HUGE = 1_500_000_000
VOCABULARY: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
}


def run_command(*arguments: str) -> None:
    """Run a command; raise its output as an error if it fails."""
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


# The ways to read a file, each with the name of the file.
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
        lambda path: run_command("render", "--history", str(path), "--input", "x"),
        "x.json",
    ),
    "tools of a command": (lambda path: run_command("render", "--tools", str(path), "--input", "x"), "x.json"),
    "input of a command": (lambda path: run_command("render", "--input", f"@{path}"), "x.txt"),
    "prompt of a command": (lambda path: run_command("render", str(path), "--input", "x"), "x.yaml"),
    "checked template": (lambda path: run_command("check-template", str(path)), "own.jinja"),
    "checked tokenizer": (lambda path: run_command("check-template", str(path.parent)), "tokenizer.json"),
    "checked prompt": (lambda path: run_command("check", str(path)), "x.prompty"),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def place(tmp_path: Path, way: str) -> Path:
    """The path of the file to be read, which does not exist yet, beside all other files that a reader needs."""
    path = tmp_path / "model" / WAYS[way][1]
    path.parent.mkdir(parents=True)
    directory = tmp_path / "model"
    (directory / "tokenizer.json").write_text(json.dumps(VOCABULARY))
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    path.unlink(missing_ok=True)
    return path


def refusal(way: str, path: Path) -> str:
    """The message of the error that reading raises, without blocking."""
    error = run_to_end(WAYS[way][0], path)
    assert isinstance(error, LazyPromptError), error or "it is read"
    return str(error)


@EVERY_WAY
def test_reading_a_named_pipe_is_refused(place: Path, way: str) -> None:
    """The naive version ``path.read_text()`` waits for another process to write into it."""
    os.mkfifo(place)
    error = refusal(way, place)
    assert "not a regular file" in error or "no prompt" in error
    assert place.name in error or way == "library"


@EVERY_WAY
def test_reading_a_link_to_a_device_is_refused(place: Path, way: str) -> None:
    """The naive version reads ``/dev/zero`` until the memory is full."""
    place.symlink_to("/dev/zero")
    error = refusal(way, place)
    assert "the path is a device, not a regular file" in error or "not a prompt" in error or "no prompt" in error


@EVERY_WAY
def test_reading_a_socket_or_a_directory_is_refused(place: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(place.name)
        error = refusal(way, place)
        assert "is a socket" in error or "No such device" in error or "not a prompt" in error or "no prompt" in error
    place.unlink()
    place.mkdir()
    if way not in {"checked prompt", "checked template", "template by name", "GGUF"}:  # which accept directories, too
        error = refusal(way, place)
        assert "is a directory" in error or "not a prompt" in error or "no prompt" in error


@EVERY_WAY
def test_file_of_1500_megabytes_is_refused_before_its_content_is_read(place: Path, way: str) -> None:
    place.touch()
    os.truncate(place, HUGE)
    errors: list[str] = []
    assert peak_of(lambda: errors.append(refusal(way, place))) < 60_000_000
    # A GGUF file may be as large as a model; its content is refused instead.
    assert way == "GGUF" or "file is too large: 1,500,000,000 bytes; the limit is " in errors[0]


@pytest.mark.parametrize("way", ["template", "configuration", "tokenizer", "tokenizer's template", "local model"])
def test_a_link_to_a_regular_file_is_followed(tmp_path: Path, place: Path, way: str) -> None:
    """Hugging Face's caches need it: a snapshot is a directory of links to blobs."""
    contents = {"tokenizer.json": json.dumps(VOCABULARY), "tokenizer_config.json": "{}", "chat_template.jinja": CHATML}
    for number, (name, content) in enumerate(contents.items()):
        (tmp_path / f"blob{number}").write_text(content)
        (place.parent / name).unlink(missing_ok=True)
        (place.parent / name).symlink_to(f"../blob{number}")
    WAYS[way][0](place)


@pytest.mark.parametrize("way", ["template"])
def test_total_size_of_additional_chat_templates_is_limited(place: Path) -> None:
    more = place.parent / "additional_chat_templates"
    more.mkdir()
    for number in range(4):
        (more / f"{number}.jinja").write_text("{#" + "x" * 5_000_000 + "#}")
    with pytest.raises(
        TokenizerError, match=r"3.jinja cannot be read: file is too large: 5,000,004 bytes; the limit is 1,777,204"
    ):
        ChatTemplate.load(place.parent)


@pytest.mark.parametrize(
    ("head", "message"),
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
def test_gguf_header_that_declares_excessive_counts_is_refused(tmp_path: Path, head: bytes, message: str) -> None:
    """The package gguf makes an object for each declared item: a hundred million for 1.5 GB of zeros."""
    path = tmp_path / "model.gguf"
    path.write_bytes(head)
    os.truncate(path, HUGE)
    with pytest.raises(TokenizerError, match=message):
        ChatTemplate.load(path)


def test_chat_template_in_a_gguf_file_is_limited_in_length(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", {"default": CHATML + "{#" + "x" * 17_000_000 + "#}"}, weights=False)
    with pytest.raises(
        TokenizerError, match=r"chat_template is too long: 17,\d+,\d+ characters; the limit is 16,777,216"
    ):
        ChatTemplate.load(path)


@pytest.mark.parametrize("read", [fingerprint, read_rows])
def test_batch_rows_from_a_named_pipe_are_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(LazyPromptError, match=r"rows.jsonl .*not a regular file"):
        read(tmp_path / "rows.jsonl")


def test_llamacpp_server_refuses_a_named_pipe_as_its_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert serve(["--model", str(tmp_path / "m.gguf"), "--port", "0"]) == 1
    assert "the path is a pipe, not a regular file" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/fd for pipes")
def test_pipe_of_a_shell_process_substitution_is_read() -> None:
    """For ``--history <(jq . chat.json)``, the shell passes the path of a pipe that this process has open."""
    reading, writing = os.pipe()
    os.write(writing, b'[["Hi", "Ho"]]')
    os.close(writing)
    run_command("render", "--history", f"/dev/fd/{reading}", "--input", "x")
    os.close(reading)


def test_named_pipe_is_refused_without_posix_open_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
