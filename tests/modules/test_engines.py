"""The table of engines: documented command lines and requests, and the choice of an engine."""

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, install_command
from lazyprompt.modules import llamacpp_server
from lazyprompt.modules.clients._base import ClientSettings
from lazyprompt.modules.clients.openai import Server
from lazyprompt.modules.engines import ENGINES, Engine, engine_for, engine_named
from support.missing import needs

ALL = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
SERVER = llamacpp_server.__file__

# As each engine's documentation writes it, for model m at port 8101; the others are started manually.
COMMANDS = {
    "llama.cpp": f"{sys.executable} -P {SERVER} --model m --port 8101 --special",
    # docs.vllm.ai, "vllm serve"
    "vllm": "vllm serve m --host 127.0.0.1 --port 8101",
}
BARE = {"add_special_tokens": False}


def test_engine_commands_match_the_documentation() -> None:
    started = {name: engine for name, engine in ENGINES.items() if engine.program}
    assert {name: " ".join(engine.command("m", 8101)) for name, engine in started.items()} == COMMANDS


@ALL
def test_each_engine_has_a_client(engine: Engine) -> None:
    client = engine.connect(ClientSettings("http://127.0.0.1:9", Secret("k"), 1.0, 0, {}))
    assert client.params({"stop": ["x"]})
    client.close()


def test_engine_table_has_install_advice_token_id_support_and_request_fields() -> None:
    raw = {"skip_special_tokens": False}
    exact = {**raw, "spaces_between_special_tokens": False}
    ids_of_choice = ({"return_token_ids": True}, ("choices", 0, "token_ids"))
    ids_beside = ({"return_tokens": True, "verbose": True}, ("__verbose", "tokens"))
    # The advice, the package, whether it takes ids, the fields of each request and of one with its own BOS token.
    assert {
        name: (*engine[4:5], engine.install_advice, engine.takes_ids, engine.params(), engine.params(own_bos=True))
        for name, engine in ENGINES.items()
    } == {
        "llama.cpp": ("xllamacpp", install_command("local"), True, {}, {}),
        "vllm": ("", "pip install vllm", True, {"extra_body": exact}, {"extra_body": {**exact, **BARE}}),
        "sglang": ("", "", True, {"extra_body": raw}, {"extra_body": raw}),
        "lmdeploy": ("", "", False, {"extra_body": exact}, {"extra_body": exact}),
        "ollama": ("", "", False, {}, {}),
        "other": ("", "", False, {}, {}),
    }
    assert [name for name, engine in ENGINES.items() if engine.no_bos is not None] == ["vllm"]
    assert [name for name, engine in ENGINES.items() if engine.server and engine.server.usage] == [*ENGINES][:4]
    assert [name for name, engine in ENGINES.items() if engine.server is None] == ["ollama"]
    found = {name: engine.answer_ids for name, engine in ENGINES.items() if engine.answer_ids}
    assert found == {"llama.cpp": ids_beside, "vllm": ids_of_choice, "sglang": ids_of_choice}
    assert Engine("mine") == ("mine", (), "", "", "", Server(), False, {}, None, None)


def test_params_merges_extra_body_and_caller_values_override_defaults() -> None:
    schema: dict[str, Any] = {"extra_body": {"structured_outputs": {"json": {}}}}
    exact = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
    expected = {"seed": 1, "extra_body": {**exact, **schema["extra_body"]}}
    assert ENGINES["vllm"].params({"seed": 1}, schema) == expected
    user = {"extra_body": {"skip_special_tokens": True}}
    assert ENGINES["sglang"].params(user) == user  # the last word is the caller's
    assert ENGINES["llama.cpp"].params() == {}
    assert ENGINES["ollama"].params({"format": {}}, {"options": {"seed": 1}}) == {"format": {}, "options": {"seed": 1}}


def test_options_become_command_line_arguments() -> None:
    options = {
        "max_model_len": 4096,
        "enforce-eager": True,
        "enable_prefix_caching": False,
        "revision": None,
        "gpu_memory_utilization": 0.5,
        "chat_template": Path("a b.jinja"),
        "lora_modules": ["a=/x", "b=/y"],
        "override_generation_config": {"temperature": 0.5},
        "api_key": Secret("sk-1"),
        "O.level": 3,
    }
    command = ENGINES["vllm"].command("m", 1, options)
    assert command[len(ENGINES["vllm"].program) :] == (
        *("--max-model-len", "4096", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--gpu-memory-utilization", "0.5", "--chat-template", "a b.jinja", "--lora-modules", "a=/x", "b=/y"),
        *("--override-generation-config", '{"temperature": 0.5}', "--api-key", "sk-1", "--O.level", "3"),
    )


@pytest.mark.parametrize(
    ("name", "model", "options", "error"),
    [
        ("vllm", "m", {"host": "0.0.0.0"}, "lazyprompt already sets the option host of vllm"),  # noqa: S104 - what is refused
        ("llama.cpp", "m", {"model": "m"}, "lazyprompt already sets the option model of llama.cpp"),
        ("vllm", "m", {"--host": "x"}, "'--host' is not a valid option name for vllm"),
        ("vllm", "m", {"a b": "x"}, "'a b' is not a valid option name for vllm"),
        ("vllm", "m", {"a": object}, "options must be strings, numbers, bools, paths, mappings or lists of these"),
        ("vllm", "--trust-remote-code", {}, "cannot begin with a hyphen: '--trust-remote-code'"),
    ],
)
def test_invalid_model_name_or_option_is_rejected(
    name: str, model: str, options: dict[str, object], error: str
) -> None:
    with pytest.raises(EngineError, match=error):
        ENGINES[name].command(model, 1, options)


def test_braces_in_a_model_name_are_not_formatted() -> None:
    assert "{port}{" in ENGINES["vllm"].command("{port}{", 1)


@pytest.mark.parametrize("name", ["llama.cpp", "llamacpp", "Llama_CPP", "llama-cpp", "vLLM", "SGLang"])
def test_engine_is_found_by_its_name_in_any_spelling(name: str) -> None:
    assert engine_named(name).name == {"v": "vllm", "s": "sglang"}.get(name[0].lower(), "llama.cpp")


def test_unknown_engine_name_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(
        EngineError, match=r"unknown engine 'vlm' \(did you mean 'vllm'\?\); expected one of llama.cpp, vllm,"
    ):
        engine_named("vlm")


@ALL
def test_unpickled_engine_is_the_same_object(engine: Engine) -> None:
    assert pickle.loads(pickle.dumps(engine)) is engine  # noqa: S301 - our own


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("m.gguf", "M.GGUF", "hf/config.json", "files/a.gguf", "files/b.gguf", "none/x", "text.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        (Path("m.gguf"), "llama.cpp"),
        ("M.GGUF", "llama.cpp"),
        (Path("hf"), "vllm"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "vllm"),
        ("qwen2.5:7b", "ollama"),
        ("hf.co/bartowski/Qwen2.5-GGUF:Q4_K_M", "ollama"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_engine_is_chosen_by_the_model(model: str | Path, engine: str) -> None:
    assert engine_for(model).name == engine


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (Path("no.gguf"), "file not found: .*no.gguf"),
        (Path("files"), "is a directory of GGUF files; pass the path of one of them: a.gguf, b.gguf"),
        (Path("none"), "is not a model directory: it contains no config.json"),
        (Path("text.txt"), "text.txt is neither a GGUF file nor a model directory"),
        (Path("/no/such/thing"), "cannot choose an engine for '/no/such/thing': .* set engine= to one of llama.cpp,"),
        ("llama", "cannot choose an engine for 'llama'"),
        ("bartowski/Qwen2.5-GGUF", "download one and pass its path"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_model_without_an_engine_is_rejected(model: str | Path, error: str) -> None:
    with pytest.raises(EngineError, match=error):
        engine_for(model)


def test_engine_program_is_found_next_to_the_python_executable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs("xllamacpp")
    monkeypatch.setenv("PATH", "/nowhere")
    assert ENGINES["llama.cpp"].executable() == sys.executable
    assert ENGINES["vllm"].executable() is None
    program = tmp_path / "vllm"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert ENGINES["vllm"].executable() == str(program)
