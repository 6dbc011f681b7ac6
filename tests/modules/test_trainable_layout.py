"""How the prompts of a local model are formatted, and which engine serves the model."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tokenizers.processors import TemplateProcessing

from lazyprompt import ChatPrompter, ChatTemplate, Markers, TokenCache, TrainableModule
from lazyprompt.answers.forms import opens_thought
from lazyprompt.errors import EngineError, TemplateError, TokenizerError
from lazyprompt.modules._layout import ids_before_text, llama_cpp_ids_before_text
from lazyprompt.modules.clients._base import ClientSettings
from lazyprompt.modules.engines import ENGINES
from modules.local_models import CHATML_HI, LLAMA, LLAMA_HI, NOWHERE
from modules.local_models import local_module as module
from support.model_server.http import Script, ScriptServer
from support.serving import Serving
from support.tiny_model import CHATML, write_model

SHOUTING = "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n{% endfor %}ASSISTANT:"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A GGUF file without a template, whose name belongs to no family."""
    return LLAMA.write(tmp_path / "nobody-bare.gguf", template=False)


def text(model: Any = "", **given: Any) -> str:
    return module(model, **given).render("hi").text


def test_chat_template_is_read_from_a_gguf_file(gguf: Path) -> None:
    assert text(gguf) == CHATML_HI
    assert text(str(gguf)) == CHATML_HI


def test_token_cache_is_shared_by_modules(folder: Path) -> None:
    kept = TokenCache(LLAMA.tokenizer())
    history = [["hi", "Hello <|eot_id|>"]]

    def ids(tokenizer: Any, history: Any = None) -> Any:
        return module(folder, engine="vllm", safe_tokens=True, tokenizer=tokenizer).payload("hi", history)["prompt"]

    first = ids(kept)
    before = kept.size
    assert before > 0
    # Another module reads the ids from the cache.
    assert ids(kept) == first == ids(LLAMA.tokenizer())
    assert kept.size == before
    assert ids(kept, history) == ids(LLAMA.tokenizer(), history)
    assert kept.size > before


def test_chat_template_is_read_from_a_model_directory(folder: Path) -> None:
    assert text(folder) == LLAMA.bos + LLAMA_HI
    assert text(f"{folder}/") == LLAMA.bos + LLAMA_HI


def test_chat_template_argument_overrides_the_template_of_the_model(gguf: Path, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(SHOUTING)
    for given in (SHOUTING, file, str(file), ChatTemplate.load(SHOUTING)):
        for model in (gguf, folder, "nobody/knows-it", ""):
            assert text(model, chat_template=given) == "USER: hi\nASSISTANT:"
    assert text(folder, chat_template=gguf) == CHATML_HI


def test_chat_template_argument_uses_the_special_tokens_of_the_model(bare: Path, folder: Path, tmp_path: Path) -> None:
    # Without them, BOS would be empty, and control tokens in the input would not be neutralized.
    for model in (bare, folder):
        made = module(model, chat_template=LLAMA.template)
        assert made.render("hi").text == LLAMA.bos + LLAMA_HI
        assert made.render(f"a{LLAMA.eos}").text.count(LLAMA.eos) == 1
    tokens = {"bos_token": "<mine>"}
    assert text(bare, chat_template=ChatTemplate.load(LLAMA.template, **tokens)).startswith("<mine>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": LLAMA.template, **tokens}))
    assert text(bare, chat_template=tmp_path / "tokenizer_config.json").startswith("<mine>")


def test_markers_argument_overrides_the_template_of_the_model(gguf: Path) -> None:
    assert text(gguf, markers="llama-3") == LLAMA.bos + LLAMA_HI
    assert text(gguf, markers="meta-llama/Meta-Llama-3-8B-Instruct") == LLAMA.bos + LLAMA_HI
    own = Markers(soh="<u>", eoh="</u>", soa="<a>", eoa="</a>", stop=("</a>",))
    made = module(gguf, markers=own).prompt(ChatPrompter(system=""))
    assert made.render("hi").text == made.prompter.with_markers(own).generate_prompt("hi")
    assert made.payload("hi")["stop"] == ["</a>"]


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "qwen2.5:7b", "/models/Qwen2.5-7B-Instruct-Q4_K_M.gguf"])
def test_family_is_recognized_by_the_model_name(name: str) -> None:
    assert text(name) == CHATML_HI


def test_family_is_recognized_by_the_file_name(bare: Path, tmp_path: Path) -> None:
    assert text(bare.rename(tmp_path / "Qwen2.5-0.5B-Instruct-Q8_0.gguf")) == CHATML_HI


def test_unknown_model_family_is_an_error_with_advice(bare: Path) -> None:
    for model in (bare, "nobody/knows-it"):
        made = module(model)
        with pytest.raises(TemplateError, match=r"chat_template=.*markers=.*lazyprompt list families") as caught:
            made.render("hi")
        assert str(model) in str(caught.value)
    with pytest.raises(TemplateError, match="pass base_model, chat_template= or markers="):
        module().render("hi")


def test_ids_before_text_finds_the_special_tokens_that_a_tokenizer_adds() -> None:
    tokenizer = LLAMA.tokenizer()
    assert ids_before_text(tokenizer) == []
    bos, eos = (tokenizer.encode(token).ids[0] for token in (LLAMA.bos, LLAMA.eos))
    added = [(LLAMA.bos, bos), (LLAMA.eos, eos)]
    tokenizer.post_processor = TemplateProcessing(f"{LLAMA.bos} {LLAMA.eos} $A {LLAMA.eos}", None, added)
    wrapped: Any = SimpleNamespace(backend_tokenizer=tokenizer)  # as transformers wraps it
    assert ids_before_text(tokenizer) == ids_before_text(wrapped) == [bos, eos]
    other: Any = SimpleNamespace(encode=None)
    assert ids_before_text(other) == []


@pytest.mark.parametrize(
    ("status", "body", "ids"),
    [(200, b'{"tokens": [1, "x", 2]}', [1, 2]), (200, b'{"tokens": 1}', None), (500, b"{}", None)],
)
def test_ids_added_by_llama_cpp_are_read_with_one_request(status: int, body: bytes, ids: list[int] | None) -> None:
    asked: list[object] = []

    def reply(path: str, headers: dict[str, str], content: bytes) -> tuple[Script, Any]:
        asked.append((path, headers["x-more"], json.loads(content)))
        return Script(status, "application/json", (body,)), lambda _: None

    with Serving(server := ScriptServer(reply)), httpx.Client() as own:
        settings = ClientSettings(None, None, 60.0, 3, {"http_client": own, "default_headers": {"x-more": "1"}})
        assert llama_cpp_ids_before_text(f"http://127.0.0.1:{server.server_port}", settings) == ids
        assert not own.is_closed
    assert asked == [("/tokenize", "1", {"content": "", "add_special": True})]


TEMPLATE = ChatTemplate.load(CHATML)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"chat_template": SHOUTING, "markers": "chatml"}, TemplateError, "pass only one of them"),
        ({"markers": "qwne"}, TemplateError, "no model family is known for 'qwne'"),
        ({"answers": "hermse"}, TemplateError, "no response format is known for 'hermse'.*did you mean 'hermes'"),
        ({"engine": "vlm"}, EngineError, "unknown engine 'vlm'.*did you mean 'vllm'"),
        ({"engine": "lmdeploy", "safe_tokens": True}, EngineError, "lmdeploy does not accept token ids"),
        *(
            ({"url": url}, EngineError, r"url must be an http\(s\) URL such as http://127.0.0.1:8000")
            for url in ("", "localhost:8000", "ftp://127.0.0.1")
        ),
        *(
            ({"timeout": timeout}, EngineError, "timeout must be a positive number")
            for timeout in (0, -1.0, None, "60", float("nan"))
        ),
        ({"options": {"api_key": "abcdef"}}, EngineError, "pass the key as api_key="),
        ({"base_model": TEMPLATE}, EngineError, "^base_model must be a model's name or path, not ChatTemplate$"),
        ({"engine": TEMPLATE}, EngineError, "^engine must be a name or an Engine, not ChatTemplate$"),
        (
            {"markers": TEMPLATE},
            TemplateError,
            "^expected the name of a model or family, or Markers, not ChatTemplate$",
        ),
        (
            {"chat_template": Markers()},
            TemplateError,
            "^chat_template must be a ChatTemplate, its path or its text, not M",
        ),
    ],
    ids=str,
)
def test_invalid_argument_is_rejected_by_the_constructor(
    gguf: Path, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        TrainableModule(**{"base_model": gguf, "url": NOWHERE, **given})


@pytest.mark.parametrize(("name", "least"), [("retries", 0), ("concurrency", 1), ("max_answer_bytes", 1)])
def test_integer_setting_has_a_minimum(gguf: Path, name: str, least: int) -> None:
    module(gguf, **{name: least})
    for wrong, reason in ((least - 1, f"at least {least}, not {least - 1}"), ("1", "an integer, not '1'")):
        with pytest.raises(EngineError, match=f"^{name} must be {reason}$"):
            module(gguf, **{name: wrong})


def test_invalid_template_or_model_file_is_an_error_even_if_the_family_is_known(tmp_path: Path) -> None:
    # By the name alone, it would be ChatML.
    model = write_model(tmp_path / "qwen2.5.gguf", {"default": "{% for m in %}"}, weights=False)
    with pytest.raises(TemplateError, match="line 1"):
        text(model)
    no_gguf = tmp_path / "qwen3.gguf"
    no_gguf.write_bytes(b"<!doctype html>")
    with pytest.raises(TokenizerError, match="is not a valid GGUF file"):
        text(no_gguf)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match="is not valid JSON"):
        text(tmp_path)


@pytest.mark.parametrize(
    ("model", "url", "engine"),
    [
        ("nobody.gguf", None, "llama.cpp"),
        ("nobody.gguf", NOWHERE, "llama.cpp"),
        ("llama3.2:3b", None, "ollama"),
        ("llama3.2:3b", NOWHERE, "ollama"),
        # The engine at a URL is unknown, whatever the model or the installed packages.
        ("weights", NOWHERE, "other"),
        ("Qwen/Qwen2.5-7B-Instruct", NOWHERE, "other"),
        ("not-here.gguf", NOWHERE, "other"),
        ("", NOWHERE, "other"),
        # A name without an engine, as in LazyLLM's documentation.
        ("internlm2-chat-7b", None, "other"),
        ("", None, "other"),
    ],
)
def test_engine_is_chosen_by_the_model_and_the_url(
    model: str, url: str | None, engine: str, gguf: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gguf.parent == folder.parent
    monkeypatch.chdir(gguf.parent)
    assert TrainableModule(model, url=url, markers="chatml").engine.name == engine


@pytest.mark.parametrize("model", ["nowhere/not-here.gguf", "not-here.gguf", "org/model-GGUF", "a/b/c", "."])
def test_missing_model_is_rejected_immediately(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError, match=f"{model}"):
        TrainableModule(model)


def test_module_without_an_engine_renders_prompts_but_cannot_start() -> None:
    made = TrainableModule("internlm2-chat-7b").prompt("Help.")
    assert made.render("hi").text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    with pytest.raises(EngineError, match=r"an engine for 'internlm2-chat-7b'.* set engine= to one of llama"):
        made.start()
    with pytest.raises(EngineError, match="pass base_model"):
        TrainableModule().start()
    with pytest.raises(EngineError, match="start it manually and pass its url="):
        TrainableModule("owner/name", engine="other").start()


def test_tilde_in_the_model_path_is_expanded(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gguf.parent))
    assert TrainableModule("~/nobody.gguf").base_model == str(gguf)
    assert TrainableModule(Path("~/nobody.gguf")).render("hi").text == CHATML_HI


# The format of responses: that of the template, else that of the model name, else that of Hermes.
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


@pytest.mark.parametrize(
    ("model", "template", "form"),
    [
        ("nobody/knows-it", "{{ '[TOOL_CALLS]' }}", "mistral"),
        ("Qwen/Qwen2.5-7B-Instruct", "{{ '[TOOL_CALLS]' }}", "mistral"),
        ("mistralai/Mistral-Small-3.2-24B", "{{ '<tool_call>' }}", "hermes"),
        ("mistralai/Mistral-Small-3.2-24B", "{{ messages }}", "mistralai/Mistral-Small-3.2-24B"),
        ("nobody/knows-it", "{{ messages }}", "hermes"),
    ],
)
def test_response_form_is_that_of_the_template_or_else_of_the_model_name(model: str, template: str, form: str) -> None:
    layout = module(model, chat_template=template).layout
    assert (layout.answers, layout.bos) == (form, "")
    assert module(model, chat_template=template, answers="llama").layout.answers == "llama"


def test_response_form_is_recognized_in_the_tool_use_template(folder: Path) -> None:
    templates = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": CHATML + "[TOOL_CALLS]"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    made = module(folder)
    assert made.layout.answers == "mistral"
    assert made.render("hi").text == CHATML_HI
    assert made.render("hi", tools=[WEATHER]).text == CHATML_HI + "[TOOL_CALLS]"


def test_response_form_is_that_of_the_markers() -> None:
    assert module("Qwen/Qwen3-Coder-30B", engine="vllm").layout.answers == "Qwen/Qwen3-Coder-30B"
    assert module("nobody/knows-it", markers="mistral-v3").layout.answers == "mistral-v3"
    assert module("Qwen/Qwen3-Coder-30B", markers=Markers(eoa="</bot>")).layout.answers == "Qwen/Qwen3-Coder-30B"
    for markers in (Markers(eoa="</bot>"), Markers(family="nobody"), ChatTemplate.load(CHATML).markers):
        assert module("nobody/knows-it", markers=markers).layout.answers == markers
        assert module("qwen2.5", answers=markers).layout.answers == markers


def test_engine_argument_may_be_a_custom_engine() -> None:
    own = ENGINES["vllm"]._replace(name="acme")
    assert module("qwen2.5", engine=own).engine is own


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("[/INST][THINK]", True),
        ("[|assistant|]<thought>\n", True),
        ("<seed:bos>assistant\n<seed:think>\n", True),
        ("<|CHATBOT_TOKEN|><|START_THINKING|>", True),
        ("<|turn>model\n<|channel>thought\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        # A reasoning tag of the user opens no reasoning.
        ("<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_opens_thought_is_true_only_if_the_prompt_ends_with_a_reasoning_tag(prompt: str, opened: bool) -> None:  # noqa: FBT001 - the table's
    assert opens_thought(prompt) is opened
