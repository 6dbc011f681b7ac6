"""How a local model's prompts are laid out, which engine serves it, and what each engine is sent."""

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
    """A file without a template, of a name that says nothing."""
    return LLAMA.write(tmp_path / "nobody-bare.gguf", template=False)


def text(model: Any = "", **given: Any) -> str:
    return module(model, **given).render("hi").text


def test_a_gguf_file_brings_its_template(gguf: Path) -> None:
    assert text(gguf) == CHATML_HI
    assert text(str(gguf)) == CHATML_HI


def test_ids_that_are_sent_come_out_of_a_cache(folder: Path) -> None:
    kept = TokenCache(LLAMA.tokenizer())
    history = [["hi", "Hello <|eot_id|>"]]

    def ids(tokenizer: Any, history: Any = None) -> Any:
        return module(folder, engine="vllm", safe_tokens=True, tokenizer=tokenizer).payload("hi", history)["prompt"]

    first = ids(kept)
    before = kept.size
    assert before > 0
    # Another module has it from there.
    assert ids(kept) == first == ids(LLAMA.tokenizer())
    assert kept.size == before
    assert ids(kept, history) == ids(LLAMA.tokenizer(), history)
    assert kept.size > before


def test_a_directory_brings_its_template(folder: Path) -> None:
    assert text(folder) == LLAMA.bos + LLAMA_HI
    assert text(f"{folder}/") == LLAMA.bos + LLAMA_HI


def test_a_template_that_is_given_goes_before_the_models(gguf: Path, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(SHOUTING)
    for given in (SHOUTING, file, str(file), ChatTemplate.load(SHOUTING)):
        for model in (gguf, folder, "nobody/knows-it", ""):
            assert text(model, chat_template=given) == "USER: hi\nASSISTANT:"
    assert text(folder, chat_template=gguf) == CHATML_HI


def test_a_template_that_is_given_has_the_models_special_tokens(bare: Path, folder: Path, tmp_path: Path) -> None:
    # Else its BOS is no text at all, and nobody knows which texts are control tokens.
    for model in (bare, folder):
        made = module(model, chat_template=LLAMA.template)
        assert made.render("hi").text == LLAMA.bos + LLAMA_HI
        assert made.render(f"a{LLAMA.eos}").text.count(LLAMA.eos) == 1
    tokens = {"bos_token": "<mine>"}
    assert text(bare, chat_template=ChatTemplate.load(LLAMA.template, **tokens)).startswith("<mine>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": LLAMA.template, **tokens}))
    assert text(bare, chat_template=tmp_path / "tokenizer_config.json").startswith("<mine>")


def test_markers_that_are_given_go_before_the_models_template(gguf: Path) -> None:
    assert text(gguf, markers="llama-3") == LLAMA.bos + LLAMA_HI
    assert text(gguf, markers="meta-llama/Meta-Llama-3-8B-Instruct") == LLAMA.bos + LLAMA_HI
    own = Markers(soh="<u>", eoh="</u>", soa="<a>", eoa="</a>", stop=("</a>",))
    made = module(gguf, markers=own).prompt(ChatPrompter(system=""))
    assert made.render("hi").text == made.prompter.with_markers(own).generate_prompt("hi")
    assert made.payload("hi")["stop"] == ["</a>"]


def test_a_family_is_known_by_the_models_name(bare: Path, tmp_path: Path) -> None:
    for name in ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5:7b", "/models/Qwen2.5-7B-Instruct-Q4_K_M.gguf"):
        assert text(name) == CHATML_HI
    assert text(bare.rename(tmp_path / "Qwen2.5-0.5B-Instruct-Q8_0.gguf")) == CHATML_HI


def test_a_model_of_no_known_family_is_told_what_to_do(bare: Path) -> None:
    for model in (bare, "nobody/knows-it"):
        made = module(model)
        with pytest.raises(TemplateError, match=r"chat_template=.*markers=.*lazyprompt list families") as told:
            made.render("hi")
        assert str(model) in str(told.value)
    with pytest.raises(TemplateError, match="pass base_model, chat_template= or markers="):
        module().render("hi")


def test_the_ids_that_a_tokenizer_adds_before_each_text_are_found() -> None:
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
def test_llama_cpp_is_asked_once_for_the_ids_that_it_adds(status: int, body: bytes, ids: list[int] | None) -> None:
    asked: list[object] = []

    def reply(path: str, headers: dict[str, str], content: bytes) -> tuple[Script, Any]:
        asked.append((path, headers["x-more"], json.loads(content)))
        return Script(status, "application/json", (body,)), lambda _: None

    with Serving(server := ScriptServer(reply)), httpx.Client() as own:
        settings = ClientSettings(None, None, 60.0, 3, {"http_client": own, "default_headers": {"x-more": "1"}})
        assert llama_cpp_ids_before_text(f"http://127.0.0.1:{server.server_port}", settings) == ids
        assert not own.is_closed
    assert asked == [("/tokenize", "1", {"content": "", "add_special": True})]


def test_what_is_wrong_in_itself_is_said_when_the_module_is_made(gguf: Path) -> None:
    with pytest.raises(TemplateError, match="pass only one of them"):
        module(gguf, chat_template=SHOUTING, markers="chatml")
    with pytest.raises(TemplateError, match="no model family is known for 'qwne'"):
        module(gguf, markers="qwne")
    with pytest.raises(TemplateError, match="no response format is known for 'hermse'.*did you mean 'hermes'"):
        module(gguf, answers="hermse")
    with pytest.raises(EngineError, match="unknown engine 'vlm'.*did you mean 'vllm'"):
        module(gguf, engine="vlm")
    with pytest.raises(EngineError, match="lmdeploy does not accept token ids"):
        module(gguf, engine="lmdeploy", safe_tokens=True)
    for url in ("", "localhost:8000", "ftp://127.0.0.1"):
        with pytest.raises(EngineError, match=r"url must be an http\(s\) URL such as http://127.0.0.1:8000"):
            module(gguf, url=url)
    for timeout in (0, -1.0, None, "60", float("nan")):
        with pytest.raises(EngineError, match="timeout must be a positive number"):
            module(gguf, timeout=timeout)
    with pytest.raises(EngineError, match="pass the key as api_key="):
        module(gguf, options={"api_key": "abcdef"})
    for name, least in (("retries", 0), ("concurrency", 1), ("max_answer_bytes", 1)):
        module(gguf, **{name: least})
        for wrong, said in ((least - 1, f"at least {least}, not {least - 1}"), ("1", "an integer, not '1'")):
            with pytest.raises(EngineError, match=f"^{name} must be {said}$"):
                module(gguf, **{name: wrong})
    template = ChatTemplate.load(CHATML)
    with pytest.raises(EngineError, match="^base_model must be a model's name or path, not ChatTemplate$"):
        TrainableModule(template)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(EngineError, match="^engine must be a name or an Engine, not ChatTemplate$"):
        module(gguf, engine=template)
    with pytest.raises(TemplateError, match="^expected the name of a model or family, or Markers, not ChatTemplate$"):
        module(gguf, markers=template)
    with pytest.raises(TemplateError, match="^chat_template must be a ChatTemplate, its path or its text, not M"):
        module(gguf, chat_template=Markers())


def test_a_template_that_is_broken_is_not_passed_over(tmp_path: Path) -> None:
    # By its name it would be ChatML.
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
        # What runs there is not to be seen by weights, nor by what is installed here.
        ("weights", NOWHERE, "other"),
        ("Qwen/Qwen2.5-7B-Instruct", NOWHERE, "other"),
        ("not-here.gguf", NOWHERE, "other"),
        ("", NOWHERE, "other"),
        # A mere name, as the documents have it.
        ("internlm2-chat-7b", None, "other"),
        ("", None, "other"),
    ],
)
def test_the_engine_is_chosen_by_the_model(
    model: str, url: str | None, engine: str, gguf: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gguf.parent == folder.parent
    monkeypatch.chdir(gguf.parent)
    assert TrainableModule(model, url=url, markers="chatml").engine.name == engine


@pytest.mark.parametrize("model", ["nowhere/not-here.gguf", "not-here.gguf", "org/model-GGUF", "a/b/c", "."])
def test_a_model_that_is_not_there_is_told_of_at_once(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError, match=f"{model}"):
        TrainableModule(model)


def test_a_mere_name_lays_prompts_out_and_says_at_the_start_what_is_missing() -> None:
    made = TrainableModule("internlm2-chat-7b").prompt("Help.")
    assert made.render("hi").text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    with pytest.raises(EngineError, match=r"an engine for 'internlm2-chat-7b'.* set engine= to one of llama"):
        made.start()
    with pytest.raises(EngineError, match="pass base_model"):
        TrainableModule().start()
    with pytest.raises(EngineError, match="start it manually and pass its url="):
        TrainableModule("owner/name", engine="other").start()


def test_the_home_directory_is_known_by_its_sign(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gguf.parent))
    assert TrainableModule("~/nobody.gguf").base_model == str(gguf)
    assert TrainableModule(Path("~/nobody.gguf")).render("hi").text == CHATML_HI


# The form of answers: what the template shows, else what the name says, else Hermes'.
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
def test_the_form_of_answers_is_the_templates_or_else_the_names(model: str, template: str, form: str) -> None:
    layout = module(model, chat_template=template).layout
    assert (layout.answers, layout.bos) == (form, "")
    assert module(model, chat_template=template, answers="llama").layout.answers == "llama"


def test_the_form_of_answers_may_be_in_the_template_for_tools(folder: Path) -> None:
    templates = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": CHATML + "[TOOL_CALLS]"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    made = module(folder)
    assert made.layout.answers == "mistral"
    assert made.render("hi").text == CHATML_HI
    assert made.render("hi", tools=[WEATHER]).text == CHATML_HI + "[TOOL_CALLS]"


def test_the_form_of_answers_is_that_of_the_markers() -> None:
    assert module("Qwen/Qwen3-Coder-30B", engine="vllm").layout.answers == "Qwen/Qwen3-Coder-30B"
    assert module("nobody/knows-it", markers="mistral-v3").layout.answers == "mistral-v3"
    assert module("Qwen/Qwen3-Coder-30B", markers=Markers(eoa="</bot>")).layout.answers == "Qwen/Qwen3-Coder-30B"
    for markers in (Markers(eoa="</bot>"), Markers(family="nobody"), ChatTemplate.load(CHATML).markers):
        assert module("nobody/knows-it", markers=markers).layout.answers == markers
        assert module("qwen2.5", answers=markers).layout.answers == markers


def test_an_engine_of_ones_own_is_a_value() -> None:
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
        # What the user says of thoughts opens none.
        ("<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_a_prompt_opens_a_thought_where_it_ends_so(prompt: str, opened: bool) -> None:  # noqa: FBT001 - the table's
    assert opens_thought(prompt) is opened
