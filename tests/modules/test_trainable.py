"""Local models on a real llama.cpp: prompts and responses are exact to the token."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lazyprompt import Budget, CharTokenCounter, ChatPrompter, Markers, TrainableModule
from modules.local_models import MAKES, WORDS, Make, posted, received_prompt, served
from support.tiny_model import LlamaCpp

HISTORY = [["Is it raining?", "No: the sun is out."], ["Und in Köln? 雨 🌧️", "Ja."]]
PROMPTER = ChatPrompter({"system": "Answer in {lang}, {tone}.", "user": "Asked: "})
CALL = {"lang": "Dutch", "tone": "briefly", "input": "And ab  tomorrow?\n\n  中文 🙂 "}


class Served(NamedTuple):
    """A model, and the address of the engine that serves it."""

    make: Make
    path: Path
    url: str

    def module(self, **more: Any) -> TrainableModule:
        """A module that calls the engine."""
        given: dict[str, Any] = {"max_tokens": 24, "temperature": 0.0, "extra_body": {"grammar": WORDS}, **more}
        return TrainableModule(self.path, url=self.url, **given).prompt(PROMPTER)


@pytest.fixture(scope="module", params=MAKES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    make = MAKES[request.param]
    path = make.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with served(path) as engine:
        yield Served(make, path, engine.url)


@pytest.fixture(scope="module")
def bos_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A model without a template, whose file makes the engine add a BOS token to each text."""
    make = MAKES["llama"]
    path = make.write(tmp_path_factory.mktemp("model") / "tiny.gguf", add_bos=True, template=False)
    with served(path) as engine:
        yield Served(make, path, engine.url)


@pytest.mark.slow
def test_usage_of_the_engine_equals_the_token_counts_of_the_tokenizer(model: Served) -> None:
    module = model.module()
    reply = module(CALL, HISTORY)
    assert reply.usage is not None
    assert reply.usage["prompt_tokens"] == len(model.make.tokenizer().encode(module.render(CALL, HISTORY).text).ids)
    assert reply.usage["completion_tokens"] == len(model.make.tokenizer().encode(reply + model.make.eos).ids)


def test_rendered_prompt_equals_the_template_output_of_the_engine(model: Served) -> None:
    messages = PROMPTER.generate_prompt(CALL, HISTORY, return_dict=True)["messages"]
    made, why = LlamaCpp(model.url).prompt(messages)
    assert (model.module().render(CALL, HISTORY).text, "") == (made, why)


def test_engine_receives_the_prompt_of_the_payload(model: Served) -> None:
    module = model.module()
    payload = module.payload(CALL, HISTORY)
    assert payload["prompt"] == module.render(CALL, HISTORY).text
    assert received_prompt(model.url, payload["prompt"]) == payload["prompt"]
    assert payload["stop"] == [model.make.eos]


def test_call_stream_acall_and_astream_give_the_same_reply(model: Served) -> None:
    module = model.module()
    reply = module(CALL, HISTORY)
    assert reply.startswith("so ")
    assert module(CALL, HISTORY) == reply

    stream = module.stream(CALL, HISTORY)
    pieces = list(stream)
    assert len(pieces) > 2
    assert "".join(pieces) == stream.reply == reply
    for name in ("message", "usage", "finish"):
        assert getattr(stream.reply, name) == getattr(reply, name)

    async def asked() -> tuple[str, list[str], str]:
        stream = module.astream(CALL, HISTORY)
        pieces = [piece async for piece in stream]
        try:
            return await module.acall(CALL, HISTORY), pieces, stream.reply
        finally:
            await module.aclose()

    assert asyncio.run(asked()) == (reply, pieces, reply)
    module.close()


def test_response_ends_before_a_stop_string(model: Served) -> None:
    module = model.module()
    whole = str(module(CALL))
    before, _, _ = whole.partition(" then ")
    for stop in (" then ", [" then ", "never said"]):
        reply = module(CALL, stop=stop)
        assert (str(reply), reply.finish) == (before, "stop")
        stream = module.stream(CALL, stop=stop)
        assert "".join(stream) == before
    always = model.module(stop=" then ")
    assert str(always(CALL)) == before
    assert str(always(CALL, stop=None)) == whole
    assert always.payload(CALL)["stop"] == [" then ", model.make.eos]


def test_token_id_and_text_prompts_give_the_same_response(model: Served) -> None:
    module, safe = model.module(), model.module(safe_tokens=True, tokenizer=model.make.tokenizer())
    reply, safely = module(CALL, HISTORY), safe(CALL, HISTORY)
    assert (safely, safely.usage, safely.finish) == (reply, reply.usage, reply.finish)
    tokens = posted(model.url, "/tokenize", content=module.render(CALL, HISTORY).text, add_special=True)["tokens"]
    assert safe.payload(CALL, HISTORY)["prompt"] == tokens


def test_forged_control_tokens_are_plain_text(model: Served) -> None:
    forged = "".join(model.make.tokens) + "new"
    honest = {**CALL, "input": "x"}
    evil, past = {"lang": forged, "tone": "", "input": forged}, [["x", forged]]
    special = model.make.special_ids()

    def structure(module: TrainableModule, call: object, history: list[list[str]]) -> list[int]:
        prompt: Any = module.payload(call, history)["prompt"]
        if isinstance(prompt, str):
            prompt = posted(model.url, "/tokenize", content=prompt, add_special=True, parse_special=True)["tokens"]
        return [token for token in prompt if token in special]

    plain = structure(model.module(), honest, [["a", "b"]])
    assert structure(model.module(), evil, past) == plain
    unsafe = model.module(safe_tokens=True, tokenizer=model.make.tokenizer())
    assert structure(unsafe, evil, past) == plain
    # Even if the text itself is not neutralized.
    unsafe.prompt(PROMPTER.with_safety("off"))
    assert structure(unsafe, evil, past) == plain
    assert forged in unsafe.render(evil, past).text
    reply = unsafe(evil, past)
    assert reply.usage is not None
    assert reply.usage["prompt_tokens"] == len(unsafe.payload(evil, past)["prompt"])


TEXT_OR_IDS = pytest.mark.parametrize("ids", [False, True], ids=["text", "ids"])


@TEXT_OR_IDS
def test_prompt_has_one_bos_if_template_and_engine_both_add_one(bos_model: Served, *, ids: bool) -> None:
    make = bos_model.make
    module = bos_model.module(chat_template=make.template, safe_tokens=ids, tokenizer=make.tokenizer())
    reply = module(CALL)
    assert reply.usage is not None
    text = module.render(CALL).text
    assert text.count(make.bos) == 1
    assert reply.usage["prompt_tokens"] == len(make.tokenizer().encode(text).ids)
    sent = module.payload(CALL)["prompt"]
    assert received_prompt(bos_model.url, sent) == text
    assert isinstance(sent, list) == ids


@TEXT_OR_IDS
def test_prompt_has_one_bos_if_only_the_engine_adds_one(bos_model: Served, *, ids: bool) -> None:
    make = bos_model.make
    module = bos_model.module(markers="chatml", safe_tokens=ids, tokenizer=make.tokenizer())
    text = module.render(CALL).text
    assert make.bos not in text
    assert received_prompt(bos_model.url, module.payload(CALL)["prompt"]) == make.bos + text


@TEXT_OR_IDS
def test_prompt_has_one_bos_if_only_the_template_adds_one(model: Served, *, ids: bool) -> None:
    module = model.module(safe_tokens=ids, tokenizer=model.make.tokenizer())
    sent = received_prompt(model.url, module.payload(CALL)["prompt"])
    assert sent == module.render(CALL).text
    assert sent.count(model.make.bos) == (model.make.bos != "<|endoftext|>")


def test_bos_of_the_engine_is_requested_once_per_module(bos_model: Served) -> None:
    # The second payload needs no request to the engine.
    module = bos_model.module(chat_template=bos_model.make.template)
    sent = module.payload(CALL)["prompt"]
    assert not sent.startswith(bos_model.make.bos)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazyprompt.modules.trainable.llama_cpp_ids_before_text", None)
        assert module.payload(CALL)["prompt"] == sent


OWN = Markers(soh="<|im_start|>user\n", eoh="<|im_end|>\n", soa="<|im_start|>assistant\n", eoa="<|im_end|>\n")


@pytest.mark.parametrize("markers", [OWN, "chatml"], ids=["markers", "family"])
def test_prompt_is_rendered_with_markers_instead_of_the_template(model: Served, markers: Markers | str) -> None:
    module = model.module(markers=markers)
    assert module(CALL).startswith("so ")
    assert module.render(CALL).text == PROMPTER.with_markers(markers).generate_prompt(CALL)


def test_engine_constrains_the_response_to_the_schema(model: Served) -> None:
    schema = {"title": "colour", "enum": ["red", "blue"]}
    module = model.module(extra_body=None)
    assert module(CALL, response_format=schema).parsed in ("red", "blue")
    assert module.payload(CALL, response_format=schema)["extra_body"] == {"json_schema": schema}


@pytest.mark.slow
def test_shared_modules_use_one_engine(model: Served) -> None:
    module = model.module()
    shared = module.share("Say something about {animal}.")
    assert shared({"animal": "otters", "input": "Go on."}).startswith("so ")
    assert "otters" in shared.render({"animal": "otters", "input": "Go on."}).text
    assert module.prompter is PROMPTER
    assert shared.url == module.url
    # An engine that one of the modules starts serves both.
    unserved = TrainableModule(model.path)
    other = unserved.share("Be brief.")
    with unserved:
        assert (unserved.status(), other.status()) == ("running", "running")
        assert other.url == unserved.url
    assert (unserved.status(), other.status()) == ("stopped", "stopped")


def test_reply_has_the_trim_report_of_the_budget(model: Served) -> None:
    module = model.module(budget=Budget(400, CharTokenCounter()))
    reply = module(CALL, [("A question that is long enough to be dropped. " * 9, "An answer.")])
    assert reply.trim is not None
    assert reply.trim.dropped == (0, 1)
    assert model.module()(CALL).trim is None
