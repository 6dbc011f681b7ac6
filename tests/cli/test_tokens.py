"""The command ``lazyprompt tokens``: complete tables, consistent sums, and every counter."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from cli.helpers import QA, TOOLS, Ran, Run, fault, write
from lazyprompt import Budget, CharTokenCounter, ChatPrompter
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.tokens.openai import TiktokenCounter
from support.vocabularies import CL100K, vocabulary_folder

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "one and\n one?"},
    {"role": "assistant", "content": "I will add them up.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "Two."},
]
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.test/cat.png"}}
IMAGE_HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]},
    {"role": "assistant", "content": "A cat."},
]
PROMPT = ("--instruction", "Say {x}.", "--system", "Be kind.", "--set", "x=hi", "--input", "Well?")
CHARS = ("--counter", "chars")


class Files:
    """Options with the files of histories and tools."""

    def __init__(self, folder: Path) -> None:
        self.history = ("--history", write(folder / "h.json", HISTORY))
        self.tools = ("--tools", write(folder / "t.json", TOOLS))
        self.picture = ("--history", write(folder / "p.json", IMAGE_HISTORY))
        self.pairs = ("--history", write(folder / "q.json", [["a" * 50, "b" * 50], ["c" * 20, "d" * 20]]))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def checked_json(ran: Ran) -> dict[str, Any]:
    """Return the JSON output, after checking its sums."""
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count(b"\n") == 1
    found: dict[str, Any] = json.loads(ran.out)
    for side in (found, found.get("after", found)):
        assert sum(side["slots"].values()) + side["tools"] + side["framing"] == side["total"]
    assert [message["index"] for message in found["messages"]] == list(range(len(found["messages"])))
    return found


def test_table_of_flat_text_lists_slots_messages_and_framing(run: Run, files: Files) -> None:
    ran = run("tokens", *PROMPT, *files.pairs, "--label", "Fine.", "--model", "chatml", *CHARS)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.decode() == (
        f"""flat: 370 characters (chars)

SLOT         TOKENS  SHARE
system            9     2%
instruction       7     2%
x                 2     1%
history         140    38%
input             5     1%
label             5     1%

#  ROLE       TOKENS  TEXT
0  user           50  {"a" * 50}
1  assistant      50  {"b" * 50}
2  user           20  {"c" * 20}
3  assistant      20  {"d" * 20}

framing         202    55%
total           370   100%
"""
    )


def test_table_of_a_payload_lists_slots_messages_tools_and_framing(run: Run, files: Files) -> None:
    ran = run("tokens", *PROMPT, *files.history, *files.tools, *CHARS, "--format", "openai")
    assert ran.out.decode() == (
        """openai: 257 characters (chars)

SLOT         TOKENS  SHARE
system            8     3%
instruction       7     3%
x                 2     1%
input             5     2%
history         127    49%

#  ROLE       TOKENS  TEXT
0  system         18  Be kind. Say hi.
1  user           13  one and one?
2  assistant     109  I will add them up. [{"id": "c1", "type": "function", "func…
3  tool            1  2
4  assistant       4  Two.
5  user            5  Well?

tools           107    42%
framing           1     0%
total           257   100%
"""
    )


def test_table_of_a_payload_with_a_budget_shows_counts_before_and_after(run: Run, files: Files) -> None:
    ran = run("tokens", *PROMPT, *files.pairs, *CHARS, "--format", "openai", "--max-tokens", "100")
    assert ran.out.decode() == (
        f"""openai: 163 characters (chars)

SLOT         BEFORE  AFTER  SHARE
system            8      8    13%
instruction       7      7    11%
x                 2      2     3%
input             5      5     8%
history         140     40    63%

#  ROLE       TOKENS  TEXT
0  system         18  Be kind. Say hi.
1  user           20  {"c" * 20}
2  assistant      20  {"d" * 20}
3  user            5  Well?

framing           1      1     2%
total           163     63   100%

163 → 63 of 100 tokens: 2 dropped (the oldest go first, down to low_water=0.5)
"""
    )


def test_table_of_flat_text_with_a_budget_shows_counts_before_and_after(run: Run, files: Files) -> None:
    ran = run("tokens", *PROMPT, *files.pairs, *CHARS, "--model", "chatml", "--max-tokens", "300")
    assert ran.out.decode() == (
        f"""flat: 365 characters (chars)

SLOT         BEFORE  AFTER  SHARE
system            9      9     4%
instruction       7      7     3%
x                 2      2     1%
history         140     40    20%
input             5      5     2%

#  ROLE       BEFORE  AFTER  TEXT
0  user           50      0  {"a" * 50}
1  assistant      50      0  {"b" * 50}
2  user           20     20  {"c" * 20}
3  assistant      20     20  {"d" * 20}

framing         202    141    69%
total           365    204   100%

365 → 204 of 300 tokens: 2 dropped (the oldest go first, down to low_water=0.5)
"""
    )


def test_table_columns_are_aligned_with_wide_characters(run: Run, files: Files) -> None:
    argv = ("--instruction", "说{语言}。", "--set", "语言=法语", "--counter", "chars", "--system", "", "--input", "x")
    lines = run("tokens", *argv, *files.history, "--format", "anthropic").out.decode().splitlines()
    assert lines[2:6] == [
        "SLOT         TOKENS  SHARE",
        f"instruction       4  {lines[3][-5:]}",
        f"语言              2  {lines[4][-5:]}",
        f"input             1  {lines[5][-5:]}",
    ]


def test_control_characters_of_a_message_are_escaped_in_the_table(run: Run) -> None:
    argv = ("tokens", "--input", "\x1b[2J\x07a\n\u202eb", "--system", "", "--format", "openai", *CHARS)
    table = run(*argv).out.decode()
    assert "\\u001b[2J\\u0007a \\u202eb\n" in table
    assert run(*argv, "--json").json["messages"][0]["text"] == "\x1b[2J\x07a \u202eb"


def test_json_on_a_terminal_escapes_invisible_characters(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.cli.streams.goes_to_terminal", lambda path: path is None)
    ran = run("tokens", "--input", "\u202eb", "--format", "openai", "--json")
    assert b"\\u202eb" in ran.out


def test_long_message_text_is_cut_to_60_columns(run: Run) -> None:
    argv = ("tokens", "--system", "", "--format", "openai", "--input")
    assert run(*argv, "x" * 5000, "--json").json["messages"][0]["text"] == "x" * 59 + "…"
    assert run(*argv, "中" * 5000, "--json").json["messages"][0]["text"] == "中" * 29 + "…"
    assert run(*argv, "x" * 60, "--json").json["messages"][0]["text"] == "x" * 60


def test_approximate_count_is_marked_as_approximate(run: Run) -> None:
    assert re.match(rb"flat: about \d+ tokens \(approximate\)\n", run("tokens", "--input", "x").out)
    assert checked_json(run("tokens", "--input", "x", "--json"))["approximate"] is True
    assert checked_json(run("tokens", "--input", "x", "--json", *CHARS))["approximate"] is False


def test_empty_prompt_has_zero_tokens(run: Run) -> None:
    ran = run("tokens", "--input", "", "--system", "", "--format", "openai", *CHARS)
    assert ran.out.decode() == ("openai: 0 characters (chars)\n\nSLOT   TOKENS  SHARE\n\ntotal       0     0%\n")


def test_json_has_total_slots_tools_framing_and_messages(run: Run, files: Files) -> None:
    ran = run("tokens", *PROMPT, *files.pairs, *files.tools, *CHARS, "--format", "openai", "--json")
    tools = len(json.dumps(TOOLS[0]))
    assert checked_json(ran) == {
        "counter": "chars",
        "approximate": False,
        "format": "openai",
        "total": 163 + tools,
        "slots": {"system": 8, "instruction": 7, "x": 2, "history": 140, "input": 5},
        "tools": tools,
        "framing": 1,
        "messages": [
            {"index": 0, "role": "system", "text": "Be kind. Say hi.", "tokens": 18},
            {"index": 1, "role": "user", "text": "a" * 50, "tokens": 50},
            {"index": 2, "role": "assistant", "text": "b" * 50, "tokens": 50},
            {"index": 3, "role": "user", "text": "c" * 20, "tokens": 20},
            {"index": 4, "role": "assistant", "text": "d" * 20, "tokens": 20},
            {"index": 5, "role": "user", "text": "Well?", "tokens": 5},
        ],
    }


def test_json_with_a_budget_has_the_remaining_counts_and_the_report(run: Run, files: Files) -> None:
    argv = ("tokens", *PROMPT, *files.pairs, *CHARS, "--format", "openai", "--json")
    found = checked_json(run(*argv, "--max-tokens", "100"))
    prompter = ChatPrompter("Say {x}.", system="Be kind.", budget=Budget(100, CharTokenCounter()))
    pairs = json.loads(Path(files.pairs[1]).read_text(encoding="utf-8"))
    _, report = prompter.fit({"x": "hi", "input": "Well?"}, pairs, format="openai")
    assert found.pop("report") == report.as_dict()
    assert found.pop("after") == {
        "total": 63,
        "slots": {"system": 8, "instruction": 7, "x": 2, "history": 40, "input": 5},
        "tools": 0,
        "framing": 1,
    }
    plain = checked_json(run(*argv))
    assert [message["tokens"] for message in found.pop("messages")] == [18, 20, 20, 5]
    assert [message["tokens"] for message in plain.pop("messages")] == [18, 50, 50, 20, 20, 5]
    assert found == plain


@pytest.mark.parametrize("form", PROVIDERS)
@pytest.mark.parametrize("label", [(), ("--label", "Fine.")])
def test_counts_match_the_payload_of_each_provider(run: Run, files: Files, form: str, label: tuple[str, ...]) -> None:
    argv = (*PROMPT, *files.history, *files.tools, "--format", form)
    found = checked_json(run("tokens", *argv, *label, *CHARS, "--json"))
    payload = run("render", *argv, *label, "--json").json
    assert found["total"] == CharTokenCounter().count(*countable(payload, profile_of(form)))
    texts = {"system": 8, "instruction": 7, "x": 2, "input": 5} | ({"label": 5} if label else {})
    assert {slot: found["slots"][slot] for slot in texts} == texts
    # History and tools are counted separately, in the OpenAI form.
    own = sum(CharTokenCounter().count([message]) for message in HISTORY)
    assert (found["slots"]["history"], found["tools"]) == (own, len(json.dumps(TOOLS[0])))
    messages, _ = countable(payload, profile_of(form))
    assert [message["tokens"] for message in found["messages"]] == [CharTokenCounter().count([m]) for m in messages]


def test_budget_keeps_the_history_of_the_prompt_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "p.yaml", 'history: [[a, b]]\nsystem: ""\nmodel: chatml')
    history = write(tmp_path / "h.json", [["c", "d"], ["e", "f"]])
    argv = ("tokens", "p.yaml", "--history", history, "--input", "x", *CHARS, "--json", "--max-tokens")
    flat = checked_json(run(*argv, str(checked_json(run(*argv, "1000"))["total"] - 1)))
    assert [(message["text"], message["after"]) for message in flat["messages"]] == [
        *(("a", 1), ("b", 1)),
        *(("c", 0), ("d", 0)),
        *(("e", 1), ("f", 1)),
    ]
    payload = checked_json(run(*argv, "5", "--format", "openai"))
    assert [message["text"] for message in payload["messages"]] == ["a", "b", "e", "f", "x"]
    assert (payload["slots"], payload["after"]["slots"]) == ({"history": 6, "input": 1}, {"history": 4, "input": 1})


def test_slots_named_tools_and_history_are_counted_once(run: Run, files: Files) -> None:
    """A slot {tools} is counted with the tools, and an empty slot {history} does not count the history again."""
    argv = ("--instruction", "{tools}{history}.", "--set", "tools=none", "--set", "history=", "--input", "x")
    found = checked_json(run("tokens", *argv, *files.pairs, *CHARS, "--json"))
    assert (found["tools"], found["slots"]["history"]) == (4, 140)


def test_media_and_roles_of_messages_are_shown(run: Run, files: Files) -> None:
    argv = ("tokens", "--input", "x", *files.picture, "--format", "openai", "--json")
    assert checked_json(run(*argv))["messages"][1]["text"] == "[image] What is this?"
    found = checked_json(run("tokens", *PROMPT, *files.history, "--format", "openai-responses", "--json"))
    roles = [message["role"] for message in found["messages"]]
    assert roles[1:5] == ["user", "assistant", "function_call", "function_call_output"]


def test_user_message_added_for_a_provider_is_listed(run: Run, tmp_path: Path) -> None:
    """A provider may require a user message in the place of dropped ones: the message is listed, because it is sent."""
    history = [{"role": "user", "content": "one and one? " * 9}, *HISTORY[3:], *HISTORY[3:]]
    options = ("--history", write(tmp_path / "long.json", history), "--format", "anthropic", "--max-tokens", "99")
    found = checked_json(run("tokens", *PROMPT, *options, *CHARS, "--json"))
    rows = [(message["role"], message["text"], message["tokens"]) for message in found["messages"]]
    assert rows[1] == ("user", "(The conversation begins.)", 26)


def test_tiktoken_counter_is_created_with_model_and_vocabulary_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[tuple[object, ...]] = []

    class Counter(CharTokenCounter):
        def __init__(self, *arguments: object) -> None:
            created.append(arguments)

    monkeypatch.setattr("lazyprompt.tokens.openai.TiktokenCounter", Counter)
    ran = run("tokens", "--input", "x", "--counter", "tiktoken:gpt-4o", "--bpe-file", "o200k")
    assert re.match(rb"flat: \d+ tokens \(tiktoken:gpt-4o\)\n", ran.out)
    assert checked_json(run("tokens", "--input", "x", "--counter", "tiktoken:o200k_base", "--json"))["counter"]
    assert created == [("gpt-4o", "o200k"), ("o200k_base", None)]


@pytest.mark.slow
def test_tiktoken_uses_vocabulary_file(run: Run, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = vocabulary_folder() / CL100K
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    argv = (*PROMPT, *files.history, *files.tools, "--format", "openai")
    found = checked_json(run("tokens", *argv, "--counter", "tiktoken:gpt-4", "--bpe-file", str(file), "--json"))
    payload = run("render", *argv, "--json").json
    assert found["total"] == TiktokenCounter("gpt-4", file).count(payload["messages"], payload["tools"])
    assert found["slots"]["x"] == 1
    # Three tokens for each message and one for its role, and three for the start of the response.
    assert 8 <= found["framing"] <= 12


def test_huggingface_counter_uses_the_tokenizer_of_a_directory(run: Run, tmp_path: Path) -> None:
    tokenizer: Any = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, "?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    argv = ("tokens", "--input", "one two three", "--system", "Be kind.", "--format", "openai", "--json", "--counter")
    found = checked_json(run(*argv, f"huggingface:{tmp_path}"))
    assert found["slots"] == {"system": 2, "input": 3}


class Client:
    """A client that counts words instead of calling the API of a provider."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def ask(self, system: object, messages: Sequence[Any], tools: Sequence[Any]) -> int:
        self.requests.append((system, messages, tools))
        return 5 + len(f"{system or ''} {json.dumps([*messages, *tools])}".split())


@pytest.mark.parametrize(
    ("provider", "name"), [("anthropic", "AnthropicTokenCounter"), ("gemini", "GeminiTokenCounter")]
)
def test_counters_of_provider_apis_send_the_rendered_messages(
    run: Run, files: Files, monkeypatch: pytest.MonkeyPatch, provider: str, name: str
) -> None:
    client = Client()
    monkeypatch.setattr(f"lazyprompt.formatters.counters.{name}._ask", lambda _, *arguments: client.ask(*arguments))
    argv = (*PROMPT, *files.history, *files.tools, "--format", provider)
    found = checked_json(run("tokens", *argv, "--counter", f"{provider}:m", "--json"))
    payload = run("render", *argv, "--json").json
    assert payload[profile_of(provider).form.messages_key] in [messages for _, messages, _ in client.requests]
    assert found["tools"] > 0
    assert found["slots"]["x"] == 1
    flat = checked_json(run("tokens", *PROMPT, "--counter", f"{provider}:m", "--json"))
    assert flat["slots"]["system"] == 2


def test_download_prints_the_path_of_the_vocabulary(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    downloaded: list[str] = []

    def download(name: str) -> Path:
        downloaded.append(name)
        return Path("cache") / "a\x1bb"

    monkeypatch.setattr("lazyprompt.tokens.download.download_vocabulary", download)
    assert run("tokens", "--download", "gpt-4o") == Ran(0, f"{Path('cache')}/a\\u001bb\n".encode(), "")
    assert downloaded == ["gpt-4o"]


@pytest.mark.parametrize(
    ("more", "option"),
    [
        (("--input", "x"), "--input"),
        (("p.yaml",), "prompt_file"),
        (("--json",), "--json"),
        (("--bpe-file", "x"), "--bpe-file"),
        (("--counter", "approximate"), "--counter"),
    ],
)
def test_download_cannot_be_combined_with_other_options(run: Run, more: tuple[str, ...], option: str) -> None:
    message = f"--download: this option cannot be combined with others; remove {option}"
    assert fault(run("tokens", "--download", "gpt-4o", *more)) == message


KNOWN = (
    "expected one of approximate, chars, tiktoken:MODEL_OR_ENCODING, huggingface:PATH, anthropic:MODEL, gemini:MODEL"
)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "PROMPT_FILE: nothing to count; add a prompt file, --instruction or --input"),
        (QA, "--set: no value for 'question', 'context'; "),
        (
            ("--input", "x", "--counter", "tiktokn:x"),
            f"--counter: unknown token counter 'tiktokn' (did you mean 'tiktoken'?); {KNOWN}",
        ),
        (("--input", "x", "--counter", ""), f"--counter: unknown token counter ''; {KNOWN}"),
        (("--input", "x", "--counter", "gpt-4o"), f"--counter: unknown token counter 'gpt-4o'; {KNOWN}"),
        (("--input", "x", "--counter", "tiktoken"), "--counter: tiktoken requires an argument; use tiktoken:MODEL_"),
        (("--input", "x", "--counter", "gemini:"), "--counter: gemini requires an argument; use gemini:MODEL"),
        (("--input", "x", "--counter", "chars:x"), "--counter: chars accepts no argument; write only chars"),
        (("--input", "x", "--counter", "chars:"), "--counter: chars accepts no argument; write only chars"),
        (("--input", "x", "--counter", "\udcff"), "--counter: the text is not valid UTF-8"),
        (("--input", "x", "--counter", "tiktoken:gtp-4o"), "--counter: tiktoken "),
        (("--input", "x", "--counter", "huggingface:no"), "--counter: no does not exist; "),
        (("--input", "x", "--bpe-file", "f"), "--bpe-file: only the tiktoken counter reads a vocabulary file; "),
        (("--input", "x", "--counter", "tiktoken:o200k_base", "--bpe-file", "no"), "--bpe-file: no cannot be read"),
        (("--input", "x", "--max-tokens", "0"), "--max-tokens: 0 is not in the range"),
        (("--input", "x", "--max-tokens", "3"), "--max-tokens: the parts that are never dropped"),
        (("--input", "x", "--max-tokens", "3", "--format", "openai"), "--max-tokens: the parts that are never"),
        (("--download", "gpt5"), "--download: tiktoken "),
        (("--input", "x", "--color", "never"), "--color: No such option"),
    ],
)
def test_usage_error_names_the_option(run: Run, argv: tuple[str, ...], message: str) -> None:
    assert fault(run("tokens", *argv)).startswith(message)


def test_missing_vocabulary_error_advises_download(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    message = fault(run("tokens", "--input", "x", "--counter", "tiktoken:gpt-4o"))
    assert message.startswith("--counter: the vocabulary o200k_base is not on this machine: ")
    assert "`lazyprompt tokens --download o200k_base`" in message


def test_tokens_and_render_accept_the_same_prompt_options(run: Run) -> None:
    def options(command: str) -> set[str]:
        return set(re.findall(r"^  (?:-., )?(--[a-z-]+)", run(command, "-h").out.decode(), re.MULTILINE))

    own = {"--counter", "--bpe-file", "--max-tokens", "--download"}
    assert options("tokens") - own == options("render") - {"--color", "--output"}
    assert own < options("tokens")
