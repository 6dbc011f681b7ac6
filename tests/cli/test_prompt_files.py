"""``.prompty`` files on the command line: what they are given, and what models are told of them."""

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
    """What the user says, where that is text."""
    content = ran.json["messages"][-1]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("form", ["flat", "openai", "anthropic", "gemini"])
def test_a_file_is_rendered_as_from_python(run: Run, order: str, tmp_path: Path, form: str) -> None:
    history = write(tmp_path / "h.json", HISTORY)
    given = {"language": "Dutch", "question": "user:\nWhere?"}
    argv = ("--set", "language=Dutch", "--set", "question=user:\nWhere?", "--history", history, "--format", form)
    made: Any = Prompty.load(order).generate_prompt(given, HISTORY, format=form)
    ran = run("render", order, *argv)
    assert ran.out.decode() == made if form == "flat" else ran.json == made


def test_a_model_of_flat_text(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "greet.PROMPTY", GREET)
    ran = run("render", file, "--set", "name=Ada", "--set", "age=30", "--model", "qwen2.5", "--system", "Be kind.")
    assert ran.out.decode() == (
        "<|im_start|>system\nBe kind.\nGreet Ada.<|im_end|>\n<|im_start|>user\n30<|im_end|>\n<|im_start|>assistant\n"
    )


def test_segments_name_inputs(run: Run, order: str) -> None:
    made = run("render", order, "--set", "language=Dutch", "--input", "Where?", "--json").json
    assert {"text": "Dutch", "slot": "language", "trusted": False} in made["segments"]


def test_what_a_budget_takes_is_shown_where_it_went(run: Run, tmp_path: Path) -> None:
    # The file's own turns are history too: what went was shown as many rows below as there are of them.
    head = "---\ninputs: {q: {kind: string, required: true}}\n---\n"
    turns = "user:\nfirst question\nassistant:\nfirst answer\nuser:\n{{ q }}"
    file = write(tmp_path / "f.prompty", head + turns)
    history = write(tmp_path / "h.json", HISTORY)
    argv = ("--input", "hi", "--history", history, "--counter", "chars", "--max-tokens", "100", "--json")
    counted: Any = run("tokens", file, *argv).json
    shown = [row["after"] for row in counted["messages"]]
    # Behind them, the report has the values of the inputs.
    assert shown == [each["after"] for each in counted["report"]["messages"] if each["role"] != "slot"]
    assert shown[0] == 0


def test_values_are_read_as_the_kinds_that_are_declared(run: Run, kinds: str, tmp_path: Path) -> None:
    (tmp_path / "place.json").write_text('{"city": "Ulm"}\n')
    values = ("count=2", "ratio=1", "urgent=true", 'tags=["a","b"]', "place=@place.json", "either=7", "code=007")
    argv = [each for value in values for each in ("--set", value)]
    assert user_text(run("render", kinds, *argv, "--format", "openai")) == '3|1|true|["a", "b"]|Ulm|false|007'
    for text in ('"7"', "[7]"):
        ran = run("render", kinds, "--set", "count=2", "--set", f"either={text}", "--format", "openai")
        assert user_text(ran) == "3|0.5|false|||true|"


def test_a_picture_is_an_address_or_a_file(run: Run, kinds: str, tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"\x89PNG")

    def picture(value: str) -> object:
        made: Any = run("render", kinds, "--set", "count=1", "--set", f"picture={value}", "--format", "openai").json
        return made["messages"][-1]["content"][-1]["image_url"]["url"]

    assert picture("https://example.com/p.png") == "https://example.com/p.png"
    assert picture("@p.png") == picture("data:image/png;base64,iVBORw==") == "data:image/png;base64,iVBORw=="


def test_text_alone_is_for_the_input_that_must_be_given(run: Run, kinds: str, order: str) -> None:
    for stdin, argv in ((None, ("--input", "30")), (b"30\n", ()), (b'{"count": 30}', ())):
        assert user_text(run("render", kinds, *argv, "--format", "openai", stdin=stdin)).startswith("31|")
    made = run("render", order, "--set", "language=Dutch", "--input", "@@x", "--format", "openai")
    assert user_text(made) == "@x"
    piped = run("render", order, "--format", "openai", stdin=b'{"language": "Dutch", "question": "@x"}')
    assert user_text(piped) == "@x"


def test_text_alone_is_for_the_slot_that_has_no_value(run: Run) -> None:
    # As in a chat: a YAML prompt file refused it.
    argv = ("--set", "document=D", "--input", "Q?", "--format", "openai")
    assert user_text(run("render", str(PROMPTS / "document_qa.yaml"), *argv)).endswith("Q?")


def test_a_thread_is_a_history(run: Run, order: str, tmp_path: Path) -> None:
    file = write(tmp_path / "needs.prompty", ORDER.replace("kind: thread", "kind: thread, required: true"))
    history = write(tmp_path / "h.json", HISTORY)
    argv = ("--set", "language=Dutch", "--input", "x", "--format", "openai")
    made = [run("render", file, *argv, *more).json for more in (("--history", history), ("--set", f"chat=@{history}"))]
    assert made[0] == made[1] == run("render", order, *argv, "--history", history).json
    for missing, more in (("chat", argv), ("question", (*argv[:2], "--history", history))):
        told = fault(run("render", file, *more, "--set", "x=1"))
        assert told.startswith(f"--set: Missing required input: {missing}; no input named 'x'; available inputs: ")


def test_all_that_is_wrong_is_in_one_line(run: Run, kinds: str) -> None:
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
def test_wrong_input(run: Run, order: str, argv: list[str], message: str) -> None:
    assert fault(run("render", order, *argv)).startswith(message)


def test_wrong_pictures_and_pipes(run: Run, kinds: str, tmp_path: Path) -> None:
    write(tmp_path / "picture", "x")
    for name, message in (
        ("no.png", "cannot read 'no.png': No such"),
        ("picture", "no known MIME type for the suffix of 'picture'"),
    ):
        told = fault(run("render", kinds, "--set", "count=1", "--set", f"picture=@{name}"))
        assert told.startswith(f"--set: picture: {message}")
    assert fault(run("render", kinds, stdin=b'{"count": 1, "x": 2}')).startswith("stdin: no input named 'x'; ")


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
def test_a_broken_file_is_one_line_with_its_place(
    run: Run, tmp_path: Path, command: tuple[str, ...], content: str | None, message: str
) -> None:
    if content is not None:
        write(tmp_path / "x.prompty", content)
    assert fault(run(*command, "x.prompty")).startswith(f"PROMPT_FILE: {message}")


def test_a_name_without_a_value_may_be_empty(run: Run, tmp_path: Path) -> None:
    argv = ("render", write(tmp_path / "u.prompty", "user:\n{{ b }}."), "--format", "openai")
    assert user_text(run(*argv, "--undefined", "empty")) == "."
    for more in ((), ("--undefined", "error")):
        assert fault(run(*argv, *more)).startswith("--set: Jinja: no value for 'b'; ")
    told = fault(run("render", "--input", "x", "--undefined", "error"))
    assert told == "--undefined: this option requires a .prompty file"


def test_params_and_roots(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "d.txt", "out")
    file = write(
        tmp_path / "in" / "p.prompty", "---\nmodel: ${params:m}\ndescription: ${file:../d.txt}\n---\nuser:\nHi"
    )
    assert run("render", file, "--param", "m=x", "--root", ".").status == 0
    assert fault(run("render", "--input", "x", "--param", "m=x")).startswith(
        "--param: this option requires a .prompty file"
    )
    assert fault(run("render", str(PROMPTS / "translate.yaml"), "--root", ".")).startswith(
        "--root: this option requires"
    )


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


def at(server: ModelServer, source: str = "openai") -> list[str]:
    return ["--base-url", server.url(source)]


def test_model_provider_options_and_outputs_of_a_file_hold(run: Run, server: ModelServer, tmp_path: Path) -> None:
    file = write(tmp_path / "a.prompty", ASKED)
    ran = run("run", file, *at(server), "--input", "Where?")
    assert ran == Ran(0, b'{"city": "Ulm"}', f"{LEFT}model.options.topK\n")
    body: Any = server.seen[0].body
    assert (body["model"], body["temperature"], body["stop"], body["user"]) == ("file-model", 0.25, ["END"], "u1")
    assert (body["frequency_penalty"], 50 in body.values()) == (0.5, True)
    assert body["messages"][-1] == {"role": "user", "content": "Where?"}
    assert "city" in json.dumps(body)


def test_options_go_before_the_file(run: Run, server: ModelServer, tmp_path: Path) -> None:
    file = write(tmp_path / "a.prompty", ASKED)
    argv = ("--model", "other", "--temperature", "1", "--max-tokens", "9")
    assert run("run", file, *at(server), "--input", "Where?", *argv).status == 0
    body = server.seen[0].body
    assert (body["model"], body["temperature"], 9 in body.values(), 50 in body.values()) == ("other", 1, True, False)


def test_another_source_is_not_told_the_model_and_what_it_does_not_know(
    run: Run, server: ModelServer, tmp_path: Path
) -> None:
    file = write(tmp_path / "a.prompty", ASKED)
    ran = run("run", file, "--source", "gemini", *at(server, "gemini"), "--input", "Where?")
    assert (ran.status, ran.err) == (0, f"{LEFT}model.options.additionalProperties\n")
    assert SOURCES["gemini"].model in server.seen[0].path
    config: Any = server.seen[0].body["generationConfig"]
    assert (config["temperature"], config["topK"], config["maxOutputTokens"]) == (0.25, 3, 50)
    local = ("--model", "qwen2.5:1b", "--url", server.url("completions"), "--engine", "vllm", "--input", "Where?")
    assert run("run", file, *local).status == 0
    assert (server.seen[1].body["model"], server.seen[1].body["temperature"]) == ("qwen2.5:1b", 0.25)


def test_a_client_that_knows_an_option_no_more_is_not_told_it(
    run: Run, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From its version 2 on, Anthropic's client takes no temperature, and refused the whole call.
    def without_temperature(_: object, common: Mapping[str, object]) -> dict[str, object]:
        if "temperature" in common:
            raise ModuleError("no temperature")
        return dict(common)

    monkeypatch.setattr("lazyprompt.modules.clients.openai.OpenAIClient.params", without_temperature)
    file = write(tmp_path / "a.prompty", "---\nmodel: {id: m, options: {temperature: 0, seed: 7}}\n---\nuser:\nHi")
    assert run("run", file, *at(server)).err == f"{LEFT}model.options.temperature\n"
    assert ("temperature" in server.seen[0].body, server.seen[0].body["seed"]) == (False, 7)


def test_options_that_openais_client_does_not_know_are_unused() -> None:
    options: Options = dict.fromkeys(Options.__annotations__)  # type: ignore[assignment]
    found = file_model({**options, "source": "zhipu"}, Prompty.loads(ASKED))
    assert found.params == {"temperature": 0.25, "max_tokens": 50, "frequency_penalty": 0.5, "stop": ["END"]}
    assert found.unused == ("options.topK", "options.additionalProperties")


def test_a_file_sends_keys_nowhere(run: Run, server: ModelServer, tmp_path: Path) -> None:
    # An address out of a file, or fields that a client takes for one, would be where keys go.
    head = "---\nmodel: {id: m, provider: gemini, connection: {endpoint: https://x.example, apiKey: k}, options: "
    fields = "{additionalProperties: {http_options: {base_url: https://x.example}}}}\n---\nuser:\nHi"
    file = write(tmp_path / "a.prompty", head + fields)
    ran = run("run", file, *at(server, "gemini"))
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
def test_models_that_cannot_be_asked(
    run: Run, tmp_path: Path, command: tuple[str, ...], model: str, argv: list[str], message: str
) -> None:
    file = write(tmp_path / "a.prompty", f"---\nmodel: {model}\ninputs: {{q: hm}}\n---\nuser:\n{{{{ q }}}}")
    assert fault(run(*command, file, *argv)).startswith(message)


def test_a_chat_with_a_file(run: Run, server: ModelServer, order: str) -> None:
    server.answer = Answer("pong")
    argv = (order, "--set", "language=Dutch", "--source", "ollama", *at(server, "ollama"), "--model", "m")
    assert run("run", "--chat", *argv, stdin=b"one\n@two\n").out == b"pong\npong\n"
    assert [(each["role"], each["content"]) for each in server.seen[1].payload["messages"]] == [
        ("system", "Answer in Dutch."),
        ("user", "one"),
        ("assistant", "pong"),
        ("user", "@two"),
    ]
    told = fault(run("run", "--chat", order, *argv[3:], stdin=b"x"))
    assert told.startswith("--set: text without an input name could be the value of")
    assert fault(run("run", "--chat", *argv, "--set", "x=1", stdin=b"x")).startswith("--set: no input named 'x'")
