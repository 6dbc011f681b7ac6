"""``.prompty`` files on the command line: their inputs, their errors, and the requests made from them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.helpers import Ran, Run, fault, write
from lazyprompt.cli.models import file_model
from lazyprompt.cli.options import Options
from lazyprompt.errors import ModuleError
from lazyprompt.files.prompty import Prompty
from lazyprompt.modules.sources import SOURCES
from support.missing import needs
from support.model_server.server import Answer, ModelServer
from support.paths import PROMPTS

needs("openai", "google.genai")

ORDER = """---
name: order
inputs:
  language: {kind: string, required: true}
  question: {kind: string, required: true}
  chat: {kind: thread}
tools:
  - {name: find, kind: function}
---
system:
Answer in {{ language }}.

{{ chat }}

user:
{{ question }}
"""
KINDS = """---
inputs:
  count: {kind: integer, required: true, enumValues: [1, 2, 30]}
  ratio: 0.5
  urgent: false
  tags: {kind: array, items: {kind: string}}
  place: {kind: object, properties: [{name: city, kind: string, required: true}]}
  either: {kind: union, oneOf: [string, integer]}
  code: {kind: string}
  picture: {kind: image}
  chat: {kind: thread}
---
user:
{{ count + 1 }}|{{ ratio }}|{{ urgent }}|{{ tags }}|{{ place.city }}|{{ either is string }}|{{ code }}
{{ picture }}
"""
GREET = """---
model: {id: gemini-2.5-flash, provider: gemini, options: {temperature: 0.5}}
inputs: {name: {kind: string, required: true}, age: {kind: integer}}
---
system:
Greet {{name}}.
user:
{{age}}
"""
HISTORY = [["When?", "Soon."]]


@pytest.fixture
def order(tmp_path: Path) -> str:
    return write(tmp_path / "order.prompty", ORDER)


@pytest.fixture
def kinds(tmp_path: Path) -> str:
    return write(tmp_path / "kinds.prompty", KINDS)


def user_text(ran: Ran) -> str:
    """Return the text of the last message."""
    content = ran.json["messages"][-1]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("form", ["flat", "openai", "anthropic", "gemini"])
def test_rendered_file_equals_generate_prompt_in_python(run: Run, order: str, tmp_path: Path, form: str) -> None:
    history = write(tmp_path / "h.json", HISTORY)
    values = {"language": "Dutch", "question": "user:\nWhere?"}
    argv = ("--set", "language=Dutch", "--set", "question=user:\nWhere?", "--history", history, "--format", form)
    expected: Any = Prompty.load(order).generate_prompt(values, HISTORY, format=form)
    ran = run("render", order, *argv)
    assert ran.out.decode() == expected if form == "flat" else ran.json == expected


def test_model_and_system_options_are_applied_to_flat_text(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "greet.PROMPTY", GREET)
    ran = run("render", file, "--set", "name=Ada", "--set", "age=30", "--model", "qwen2.5", "--system", "Be kind.")
    assert ran.out.decode() == (
        "<|im_start|>system\nBe kind.\nGreet Ada.<|im_end|>\n<|im_start|>user\n30<|im_end|>\n<|im_start|>assistant\n"
    )


def test_json_segments_name_the_inputs(run: Run, order: str) -> None:
    made = run("render", order, "--set", "language=Dutch", "--input", "Where?", "--json").json
    assert {"text": "Dutch", "slot": "language", "trusted": False} in made["segments"]


def test_tokens_command_shows_dropped_messages_in_their_own_rows(run: Run, tmp_path: Path) -> None:
    # Dropped messages were shown too far down, by the number of turns in the file.
    head = "---\ninputs: {q: {kind: string, required: true}}\n---\n"
    turns = "user:\nfirst question\nassistant:\nfirst answer\nuser:\n{{ q }}"
    file = write(tmp_path / "f.prompty", head + turns)
    history = write(tmp_path / "h.json", HISTORY)
    argv = ("--input", "hi", "--history", history, "--counter", "chars", "--max-tokens", "100", "--json")
    counted: Any = run("tokens", file, *argv).json
    shown = [row["after"] for row in counted["messages"]]
    # After the messages, the report lists the values of the inputs.
    assert shown == [each["after"] for each in counted["report"]["messages"] if each["role"] != "slot"]
    assert shown[0] == 0


def test_values_are_parsed_as_the_declared_kinds(run: Run, kinds: str, tmp_path: Path) -> None:
    (tmp_path / "place.json").write_text('{"city": "Ulm"}\n')
    values = ("count=2", "ratio=1", "urgent=true", 'tags=["a","b"]', "place=@place.json", "either=7", "code=007")
    argv = [each for value in values for each in ("--set", value)]
    assert user_text(run("render", kinds, *argv, "--format", "openai")) == '3|1|true|["a", "b"]|Ulm|false|007'


@pytest.mark.parametrize("text", ['"7"', "[7]"])
def test_union_value_that_is_not_of_another_kind_is_a_string(run: Run, kinds: str, text: str) -> None:
    ran = run("render", kinds, "--set", "count=2", "--set", f"either={text}", "--format", "openai")
    assert user_text(ran) == "3|0.5|false|||true|"


def test_image_value_is_a_url_or_a_file(run: Run, kinds: str, tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"\x89PNG")

    def picture(value: str) -> object:
        made: Any = run("render", kinds, "--set", "count=1", "--set", f"picture={value}", "--format", "openai").json
        return made["messages"][-1]["content"][-1]["image_url"]["url"]

    assert picture("https://example.com/p.png") == "https://example.com/p.png"
    assert picture("@p.png") == picture("data:image/png;base64,iVBORw==") == "data:image/png;base64,iVBORw=="


@pytest.mark.parametrize(("stdin", "argv"), [(None, ["--input", "30"]), (b"30\n", []), (b'{"count": 30}', [])])
def test_required_input_is_set_by_option_or_pipe(run: Run, kinds: str, stdin: bytes | None, argv: list[str]) -> None:
    assert user_text(run("render", kinds, *argv, "--format", "openai", stdin=stdin)).startswith("31|")


def test_unnamed_text_is_the_value_of_the_missing_required_input(run: Run, order: str) -> None:
    made = run("render", order, "--set", "language=Dutch", "--input", "@@x", "--format", "openai")
    assert user_text(made) == "@x"
    piped = run("render", order, "--format", "openai", stdin=b'{"language": "Dutch", "question": "@x"}')
    assert user_text(piped) == "@x"


def test_unnamed_text_is_the_value_of_the_only_unset_slot(run: Run) -> None:
    # The text was refused with a YAML prompt file, except in a chat.
    argv = ("--set", "document=D", "--input", "Q?", "--format", "openai")
    assert user_text(run("render", str(PROMPTS / "document_qa.yaml"), *argv)).endswith("Q?")


def test_thread_input_is_set_by_history_or_by_value(run: Run, order: str, tmp_path: Path) -> None:
    file = write(tmp_path / "needs.prompty", ORDER.replace("kind: thread", "kind: thread, required: true"))
    history = write(tmp_path / "h.json", HISTORY)
    argv = ("--set", "language=Dutch", "--input", "x", "--format", "openai")
    made = [run("render", file, *argv, *more).json for more in (("--history", history), ("--set", f"chat=@{history}"))]
    assert made[0] == made[1] == run("render", order, *argv, "--history", history).json
    message = fault(run("render", file, *argv, "--set", "x=1"))
    assert message.startswith("--set: Missing required input: chat; no input named 'x'; available inputs: ")


def test_all_wrong_values_are_reported_in_one_line(run: Run, kinds: str) -> None:
    values = ("count=4", "ratio=much", "urgent=yes", "tags=x", "place={}", "picture=p.png", "chat=[5]", "cuont=1")
    message = fault(run("render", kinds, *[each for value in values for each in ("--set", value)]))
    for part in (
        "picture is 'p.png', which is not a URL; for a file, use @p.png",
        "chat: history[0] must be a pair",
        "count is 4, but must be one of 1, 2, 30",
        "ratio is 'much', but must be of kind float",
        "urgent is 'yes', but must be of kind boolean",
        "tags is 'x', but must be of kind array",
        "Missing required input: place.city",
        "write all values other than text and URLs as JSON",
        "no input named 'cuont' (did you mean 'count'?); available inputs: 'count', 'ratio', ",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--set", "langauge=nl", "--set", "question=x"], "--set: Missing required input: language; no input named"),
        (
            ["--set", "language=nl", "--history", "h.json", "--set", "x=1"],
            "--set: Missing required input: question; no input named 'x'; available inputs: ",
        ),
        (["--input", "x"], "--input: text without an input name could be the value of 'language', 'question' in "),
        (["--set", "language=a", "--set", "question=b", "--input", "c"], "--input: "),
        (["--set", "language=@no.txt"], "--set: no.txt: No such file or directory"),
        (["--set", "language=a", "--input", "b", "--param", "x"], "--param: expected NAME=VALUE, not 'x'"),
        (
            ["--instruction", "x"],
            "--instruction: the prompt file defines this value; pass either the option or the file",
        ),
    ],
)
def test_wrong_inputs_are_usage_errors(run: Run, order: str, argv: list[str], message: str) -> None:
    write(Path("h.json"), HISTORY)
    assert fault(run("render", order, *argv)).startswith(message)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--set", "count=1", "--set", "picture=@no.png"], "--set: picture: cannot read 'no.png': No such"),
        (["--set", "count=1", "--set", "picture=@x"], "--set: picture: no known MIME type for the suffix of 'x'"),
        ([], "stdin: no input named 'x'; "),
    ],
)
def test_wrong_images_and_piped_names_are_usage_errors(run: Run, kinds: str, argv: list[str], message: str) -> None:
    Path("x").touch()
    assert fault(run("render", kinds, *argv, stdin=b'{"count": 1, "x": 2}')).startswith(message)


@pytest.mark.parametrize("command", [("render",), ("tokens",), ("run",), ("run", "--chat")])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "x.prompty:1:1: file not found"),
        ("---\nname: [\n---\nHi", "x.prompty:3:1: "),
        ("---\nname: x\ninputs: {q: {kind: strnig}}\n---\nHi", "x.prompty:3:20: "),
        ("user:\n{{ q", "x.prompty:2:1: "),
        ("---\nmodel: ${params:m}\n---\nHi", "x.prompty:2:8: unknown param 'm'"),
        ("---\nmodel: ${file:../m.txt}\n---\nHi", "x.prompty:2:8: "),
    ],
)
def test_broken_file_is_reported_in_one_line_with_its_place(
    run: Run, tmp_path: Path, command: tuple[str, ...], content: str | None, message: str
) -> None:
    if content is not None:
        write(tmp_path / "x.prompty", content)
    assert fault(run(*command, "x.prompty")).startswith(f"PROMPT_FILE: {message}")


def test_undefined_option_renders_a_variable_without_a_value_as_empty(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "u.prompty", "user:\n{{ b }}.")
    assert user_text(run("render", file, "--undefined", "empty", "--format", "openai")) == "."


@pytest.mark.parametrize("argv", [(), ("--undefined", "error")])
def test_variable_without_a_value_is_a_usage_error(run: Run, tmp_path: Path, argv: tuple[str, ...]) -> None:
    file = write(tmp_path / "u.prompty", "user:\n{{ b }}.")
    assert fault(run("render", file, *argv)).startswith("--set: Jinja: no value for 'b'; ")


def test_param_and_root_options_are_applied(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "d.txt", "out")
    file = write(
        tmp_path / "in" / "p.prompty", "---\nmodel: ${params:m}\ndescription: ${file:../d.txt}\n---\nuser:\nHi"
    )
    assert run("render", file, "--param", "m=x", "--root", ".").status == 0


@pytest.mark.parametrize("prompt", [("--input", "x"), (str(PROMPTS / "translate.yaml"),)])
@pytest.mark.parametrize(("option", "value"), [("--param", "m=x"), ("--root", "."), ("--undefined", "error")])
def test_option_requires_a_prompty_file(run: Run, prompt: tuple[str, ...], option: str, value: str) -> None:
    assert fault(run("render", *prompt, option, value)) == f"{option}: this option requires a .prompty file"


ASKED = """---
model:
  id: file-model
  provider: openai
  options:
    temperature: 0.25
    maxOutputTokens: 50
    stopSequences: [END]
    topK: 3
    frequencyPenalty: 0.5
    additionalProperties: {user: u1}
inputs: {question: {kind: string, required: true}}
outputs: {city: {kind: string, required: true}}
---
system:
Be brief.
user:
{{ question }}
"""
LEFT = "lazyprompt: unused fields in the prompt file: "


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    for source in SOURCES.values():
        for name in source.keys:
            monkeypatch.setenv(name, "k")
    with ModelServer() as made:
        made.answer = Answer('{"city": "Ulm"}')
        yield made


def target(server: ModelServer, source: str = "openai") -> list[str]:
    return ["--base-url", server.url(source)]


def test_model_provider_options_and_outputs_of_a_file_are_sent(run: Run, server: ModelServer, tmp_path: Path) -> None:
    file = write(tmp_path / "a.prompty", ASKED)
    ran = run("run", file, *target(server), "--input", "Where?")
    assert ran == Ran(0, b'{"city": "Ulm"}', f"{LEFT}model.options.topK\n")
    body: Any = server.seen[0].body
    assert (body["model"], body["temperature"], body["stop"], body["user"]) == ("file-model", 0.25, ["END"], "u1")
    assert (body["frequency_penalty"], 50 in body.values()) == (0.5, True)
    assert body["messages"][-1] == {"role": "user", "content": "Where?"}
    assert "city" in json.dumps(body)


def test_command_line_options_override_the_file(run: Run, server: ModelServer, tmp_path: Path) -> None:
    file = write(tmp_path / "a.prompty", ASKED)
    argv = ("--model", "other", "--temperature", "1", "--max-tokens", "9")
    assert run("run", file, *target(server), "--input", "Where?", *argv).status == 0
    body = server.seen[0].body
    assert (body["model"], body["temperature"], 9 in body.values(), 50 in body.values()) == ("other", 1, True, False)


def test_model_and_unsupported_options_of_a_file_are_not_sent_to_another_source(
    run: Run, server: ModelServer, tmp_path: Path
) -> None:
    file = write(tmp_path / "a.prompty", ASKED)
    ran = run("run", file, "--source", "gemini", *target(server, "gemini"), "--input", "Where?")
    assert (ran.status, ran.err) == (0, f"{LEFT}model.options.additionalProperties\n")
    assert SOURCES["gemini"].model in server.seen[0].path
    config: Any = server.seen[0].body["generationConfig"]
    assert (config["temperature"], config["topK"], config["maxOutputTokens"]) == (0.25, 3, 50)
    local = ("--model", "qwen2.5:1b", "--url", server.url("completions"), "--engine", "vllm", "--input", "Where?")
    assert run("run", file, *local).status == 0
    assert (server.seen[1].body["model"], server.seen[1].body["temperature"]) == ("qwen2.5:1b", 0.25)


def test_option_that_a_client_no_longer_accepts_is_not_sent(
    run: Run, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Anthropic's client accepts no temperature since its version 2, and the whole call failed.
    def without_temperature(_: object, common: Mapping[str, object]) -> dict[str, object]:
        if "temperature" in common:
            raise ModuleError("no temperature")
        return dict(common)

    monkeypatch.setattr("lazyprompt.modules.clients.openai.OpenAIClient.params", without_temperature)
    file = write(tmp_path / "a.prompty", "---\nmodel: {id: m, options: {temperature: 0, seed: 7}}\n---\nuser:\nHi")
    assert run("run", file, *target(server)).err == f"{LEFT}model.options.temperature\n"
    assert ("temperature" in server.seen[0].body, server.seen[0].body["seed"]) == (False, 7)


def test_options_unknown_to_the_openai_client_are_reported_as_unused() -> None:
    options: Options = dict.fromkeys(Options.__annotations__)  # type: ignore[assignment]
    found = file_model({**options, "source": "zhipu"}, Prompty.loads(ASKED))
    assert found.params == {"temperature": 0.25, "max_tokens": 50, "frequency_penalty": 0.5, "stop": ["END"]}
    assert found.unused == ("options.topK", "options.additionalProperties")


def test_file_cannot_set_the_address_that_keys_are_sent_to(run: Run, server: ModelServer, tmp_path: Path) -> None:
    # With an address from a file, or from fields that a client uses as one, the file's author would get the keys.
    head = "---\nmodel: {id: m, provider: gemini, connection: {endpoint: https://x.example, apiKey: k}, options: "
    fields = "{additionalProperties: {http_options: {base_url: https://x.example}}}}\n---\nuser:\nHi"
    file = write(tmp_path / "a.prompty", head + fields)
    ran = run("run", file, *target(server, "gemini"))
    assert (ran.status, ran.err) == (0, f"{LEFT}model.options.additionalProperties, model.connection\n")
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("model", "argv", "message"),
    [
        ("{id: m, provider: azure}", [], "PROMPT_FILE: model.provider 'azure' is not a known source; "),
        (
            "{id: m, apiType: embedding}",
            [],
            "PROMPT_FILE: model.apiType is 'embedding'; only chat models can be called",
        ),
        ("{provider: ollama}", [], "--source: ollama has no default model; pass model="),
        ("{id: m, provider: openai}", ["--model", "no.gguf"], "--model: file not found: no.gguf"),
        ("{id: m}", ["--model", "no.gguf"], "--model: file not found: no.gguf"),
    ],
)
@pytest.mark.parametrize("command", [("run",), ("run", "--chat")])
def test_model_that_cannot_be_called_is_a_usage_error(
    run: Run, tmp_path: Path, command: tuple[str, ...], model: str, argv: list[str], message: str
) -> None:
    file = write(tmp_path / "a.prompty", f"---\nmodel: {model}\ninputs: {{q: hm}}\n---\nuser:\n{{{{ q }}}}")
    assert fault(run(*command, file, *argv)).startswith(message)


def test_chat_sends_each_line_as_the_open_input_of_a_file(run: Run, server: ModelServer, order: str) -> None:
    server.answer = Answer("pong")
    argv = (order, "--set", "language=Dutch", "--source", "ollama", *target(server, "ollama"), "--model", "m")
    assert run("run", "--chat", *argv, stdin=b"one\n@two\n").out == b"pong\npong\n"
    assert [(each["role"], each["content"]) for each in server.seen[1].payload["messages"]] == [
        ("system", "Answer in Dutch."),
        ("user", "one"),
        ("assistant", "pong"),
        ("user", "@two"),
    ]
    message = fault(run("run", "--chat", order, *argv[3:], stdin=b"x"))
    assert message.startswith("--set: text without an input name could be the value of")
    assert fault(run("run", "--chat", *argv, "--set", "x=1", stdin=b"x")).startswith("--set: no input named 'x'")
