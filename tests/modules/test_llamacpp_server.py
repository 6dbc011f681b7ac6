"""llama.cpp's server as we run it: what reaches the model, what comes back, and what is said of wrong use."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, cast

import openai
import pytest
import urllib3

from lazyprompt.modules import llamacpp_server
from lazyprompt.modules.process import EngineProcess
from support.engines import BOS, EOS, QUICK, SECONDS, model_with_bos, python, said, spawned, tiny_model, tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # engines

SERVER = python("-P", llamacpp_server.__file__)
TURN = "<|im_start|>user\nZürich, 東京?<|im_end|>\n<|im_start|>assistant\n"
GREEDY: dict[str, Any] = {"model": "m", "max_tokens": 8, "temperature": 0}
LETTERS = {"64": 90, "65": 90}  # nothing but a and b


class Asked:
    """The engine, asked by the official client."""

    def __init__(self, engine: EngineProcess) -> None:
        self.url = engine.url
        self.client = openai.OpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0, timeout=SECONDS)

    def complete(self, prompt: Any, **more: Any) -> openai.types.Completion:
        return cast("openai.types.Completion", self.client.completions.create(prompt=prompt, **{**GREEDY, **more}))

    def read(self, prompt: Any) -> int:
        """How many tokens of a prompt the model read."""
        usage = self.complete(prompt, max_tokens=1).usage
        assert usage is not None
        return usage.prompt_tokens

    def text(self, prompt: Any, **more: Any) -> str:
        return self.complete(prompt, **more).choices[0].text

    def own(self, **body: Any) -> dict[str, Any]:
        """What llama.cpp's own endpoint answers, through the same client.

        Behind a stream the server closes its connection: on a busy machine the next request met that, and was lost.
        """
        patient = self.client.with_options(max_retries=1)
        return patient.post(f"{self.url}/completion", cast_to=dict[str, Any], body={"temperature": 0, **body})

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager(retries=False) as pool:
            return pool.request("GET", self.url + path, headers=headers)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with EngineProcess("llama.cpp", tiny_model(tmp_path_factory.mktemp("model")), options=QUICK) as process:
        asked = Asked(process)
        with asked.client:
            yield asked


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with pytest.MonkeyPatch.context() as patch:
        model = model_with_bos(tmp_path_factory.mktemp("model"), patch)
    with EngineProcess("llama.cpp", model, options=QUICK) as process:
        asked = Asked(process)
        with asked.client:
            yield asked


def ids_of(text: str, *, special: bool = True) -> list[int]:
    """The ids of a text; those of its letters alone where nothing in it is to be special."""
    made = tokenizer()
    made.encode_special_tokens = not special
    return made.encode(text).ids


@pytest.mark.parametrize("text", ["hi", TURN, "a b\n\n 雨\t🌧️", f"<|im_start|>{EOS}<|im_end", "x" * 200])
def test_text_is_as_many_tokens_as_the_tokenizer_says(engine: Asked, text: str) -> None:
    assert engine.read(text) == engine.read(ids_of(text)) == len(ids_of(text))
    assert engine.text(text) == engine.text(ids_of(text))


def test_markers_in_a_text_are_special_and_ids_avoid_that(engine: Asked) -> None:
    letters = ids_of(TURN, special=False)
    assert len(ids_of(TURN)) < len(letters)
    assert engine.read(TURN) == len(ids_of(TURN))
    assert engine.read(letters) == len(letters)
    assert engine.own(prompt=letters, n_predict=1)["prompt"] == TURN  # the same letters, other tokens


def test_greedy_and_seeded_answers_are_the_same_twice(engine: Asked) -> None:
    assert engine.text(TURN) == engine.text(TURN) != ""
    free = {"temperature": 1.5, "logit_bias": LETTERS, "max_tokens": 24}
    seeded = [engine.text(TURN, **free, seed=seed) for seed in (5, 5, 6)]
    assert seeded[0] == seeded[1]
    arguments: dict[str, Any] = {**GREEDY, **free, "prompt": TURN, "seed": 5, "stream": True}
    streamed = engine.client.completions.create(**arguments)
    assert "".join(chunk.choices[0].text for chunk in streamed) == seeded[0]


def test_a_stop_string_ends_the_answer_and_is_not_in_it(engine: Asked) -> None:
    whole = {"logit_bias": {"64": 100}, "max_tokens": 9}
    assert (engine.text("x", **whole), engine.complete("x", **whole).choices[0].finish_reason) == ("a" * 9, "length")
    stopped = engine.complete("x", **whole, stop=["b", "aaaa"])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("", "stop")
    own = engine.own(prompt="x", n_predict=9, logit_bias=[[64, 100]], stop=["aaaa"], return_tokens=True)
    # Its ids are with the answer all the same.
    assert (own["content"], own["stop_type"], own["stopping_word"]) == ("", "word", "aaaa")
    assert own["tokens"] == [64] * 4


def test_special_tokens_are_in_the_text(engine: Asked) -> None:
    start, end = (str(ids_of(token)[0]) for token in ("<|im_start|>", EOS))
    assert engine.text("x", logit_bias={start: 100}, max_tokens=2) == "<|im_start|>" * 2
    # That which ends the answer as well, if it is not among the stop strings.
    ended = engine.complete("x", logit_bias={end: 100})
    assert (ended.choices[0].text, ended.choices[0].finish_reason) == (EOS, "stop")
    assert engine.text("x", logit_bias={end: 100}, stop=[EOS]) == ""


def test_a_schema_is_followed(engine: Asked) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
    schema |= {"additionalProperties": False}
    text = engine.text("x", max_tokens=100, extra_body={"json_schema": schema})
    assert isinstance(json.loads(text.removesuffix(EOS).removesuffix(BOS))["yes"], bool)
    # Which response_format does not do here.
    asked = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert engine.text("x", extra_body={"response_format": asked}) == engine.text("x")


def test_the_ids_of_an_answer_come_from_its_own_endpoint(engine: Asked) -> None:
    answer = engine.own(prompt=ids_of(TURN), n_predict=8, return_tokens=True)
    assert len(answer["tokens"]) == answer["tokens_predicted"] == 8
    assert answer["content"] == engine.text(TURN)
    assert answer["tokens_evaluated"] == len(ids_of(TURN))
    extra = engine.complete(TURN, extra_body={"return_tokens": True}).choices[0].model_extra
    assert not extra  # /v1/completions has none


def test_a_stream_has_not_all_ids_and_no_half_characters(engine: Asked) -> None:
    body = {"prompt": "hi", "n_predict": 8, "temperature": 0, "return_tokens": True}
    kind = dict[str, Any]
    stream_of = openai.Stream[dict[str, Any]]
    path = f"{engine.url}/completion"
    with engine.client.post(
        path, cast_to=kind, body=body | {"stream": True}, stream=True, stream_cls=stream_of
    ) as made:
        events = list(made)
    whole = engine.own(**body)
    # Those of tokens that are a part of a character are missing.
    assert 0 < sum(len(event["tokens"]) for event in events) < len(whole["tokens"])
    # And so is a character that is not whole at the end.
    text = "".join(event["content"] for event in events)
    assert text != whole["content"] == text + whole["content"][len(text) :]
    assert set(whole["content"][len(text) :]) == {"\N{REPLACEMENT CHARACTER}"}
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]


def test_a_bos_goes_before_text_and_never_before_ids(with_bos: Asked) -> None:
    hi, bos = ids_of("hi"), ids_of(BOS)
    assert with_bos.read("hi") == len(bos) + len(hi)
    assert with_bos.read(BOS + "hi") == 2 * len(bos) + len(hi)  # doubled
    assert with_bos.read(hi) == len(hi)
    assert with_bos.read(bos + hi) == len(bos) + len(hi)


def test_no_bos_goes_before_text_where_the_model_has_none(engine: Asked) -> None:
    assert engine.read(BOS + "hi") == 3


def test_the_context_is_that_of_each_request(engine: Asked) -> None:
    props = engine.get("/props").json()
    assert (props["default_generation_settings"]["n_ctx"], props["total_slots"]) == (512, 2)
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as caught:
        engine.text([64] * 600)
    body = cast("dict[str, Any]", caught.value.body)
    assert (body["type"], body["n_prompt_tokens"], body["n_ctx"]) == ("exceed_context_size_error", 600, 512)


@pytest.mark.parametrize("prompt", [[99999], [-1], [], None])
def test_a_prompt_that_is_none_is_refused(engine: Asked, prompt: object) -> None:
    with pytest.raises(openai.BadRequestError):
        engine.text(prompt)


def test_pages_from_elsewhere_read_nothing(engine: Asked) -> None:
    assert "access-control-allow-origin" not in engine.get("/health", Origin="http://elsewhere.example").headers
    assert [engine.get(path).status for path in ("/health", "/", "/slots")] == [200, 404, 501]


def started(model: Path, *options: str) -> tuple[int | None, str, str]:
    """The exit code of a server, None if it serves, its first line and what it says of errors."""
    with spawned([*SERVER, "--model", str(model), "--port", "0", *options]) as process:
        line = said(process)
        served = "is served at http://127.0.0.1:" in line
        if served:
            process.terminate()
        _, errors = process.communicate(timeout=SECONDS)
    return None if served else process.returncode, line, errors.decode()


@pytest.mark.parametrize(
    "options",
    [
        ["--n-batch", "64", "--special", "--flash-attn-type", "enabled", "--sampling.temp", "0"],
        ["--n_batch=64", "--split-mode=none", "--no-cont-batching", "--no-perf", "--model-alias", '["a", "b"]'],
        ["--threads", "1", "--seed", "3", "--parallel", "2", "--n-gpu-layers", "-1"],
    ],
)
def test_it_takes_the_fields_of_llamacpp(tmp_path: Path, options: list[str]) -> None:
    assert started(tiny_model(tmp_path), *options)[0] is None


def test_it_takes_a_template(tmp_path: Path) -> None:
    template = tmp_path / "a template.jinja"
    template.write_text("{{ messages[0].content }}!", encoding="utf-8")
    options = {**QUICK, "chat_template": template}
    with EngineProcess("llama.cpp", tiny_model(tmp_path), options=options) as process, urllib3.PoolManager() as pool:
        body = {"messages": [{"role": "user", "content": "so"}]}
        assert pool.request("POST", process.url + "/apply-template", json=body).json() == {"prompt": "so!"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--n-bach", "64"], "llama.cpp has no option n_bach (did you mean n_batch?)"),
        (["--sampling.temperature", "1"], "llama.cpp has no option sampling.temperature"),
        (["--nothing.temp", "1"], "llama.cpp has no option nothing.temp"),
        (["--no-such"], "llama.cpp has no option no_such"),
        (["--__class__", "1"], "llama.cpp has no option __class__"),
        (["--n-batch", "many"], "the option n_batch does not take 'many': it is as JSON writes it, and now 2048"),
        (["--n-batch", "1.5"], "the option n_batch does not take '1.5': "),
        (["--n-batch", "99999999999"], "the option n_batch does not take '99999999999': value too large"),
        (["--special", "1"], "the option special does not take '1': it is true or false"),
        (["--model-alias", "3"], "the option model_alias does not take '3': "),
        (["--split-mode", "x"], "the option split_mode does not take 'x': it is one of none, layer, row, tensor"),
        (["--tensor-split", "[1]"], "the option tensor_split does not take '[1]': tensor must of length 128"),
        (["--chat-template", "no/such"], "cannot read the chat template no/such: No such file or directory"),
        (["64"], "'64' is no option: one is --name value"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(
    tmp_path: Path, options: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = llamacpp_server.main(["--model", str(tiny_model(tmp_path)), "--port", "0", *options])
    line, errors = capfd.readouterr()
    assert (code, line) == (1, "")
    assert errors.startswith(f"llamacpp_server: {says}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<html>not found</html>", " is no GGUF file: it begins with b'<htm', not with b'GGUF'"),
        (b"", " is no GGUF file: it begins with b'', not with b'GGUF'"),
        (None, ": No such file or directory"),
    ],
)
def test_a_file_that_is_no_gguf_is_told_in_one_line(
    tmp_path: Path, content: bytes | None, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.gguf"
    if content is not None:
        model.write_bytes(content)
    code = llamacpp_server.main(["--model", str(model), "--port", "0"])
    line, errors = capfd.readouterr()
    assert (code, line) == (1, "")
    assert says in errors
    assert errors.count("\n") == 1


def test_without_xllamacpp_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert llamacpp_server.main(["--model", str(tiny_model(tmp_path)), "--port", "0"]) == 1
    said_of_it = (
        'llamacpp_server: the package xllamacpp is not installed; install it with: pip install "lazyprompt[local]"'
    )
    assert capfd.readouterr().err == f"{said_of_it}\n"


@pytest.mark.parametrize("part", [0.001, 0.5])
def test_a_gguf_that_is_cut_off_does_not_crash(tmp_path: Path, part: float) -> None:
    model = tiny_model(tmp_path)
    whole = model.read_bytes()
    model.write_bytes(whole[: int(len(whole) * part)])
    code, _, errors = started(model)
    assert code == 1
    assert f"llamacpp_server: llama.cpp does not serve {model}; its own lines beside this one tell why\n" in errors
    assert " E llama_model_load: error loading model: " in errors
    assert "Traceback" not in errors


def test_a_wrong_template_does_not_crash(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("{% if", encoding="utf-8")
    code, _, errors = started(tiny_model(tmp_path), "--chat-template", str(tmp_path / "t"))
    assert (code, "Unexpected EOF" in errors, "Traceback" in errors) == (1, True, False)


def test_ctrl_c_leaves_no_traceback(tmp_path: Path) -> None:
    with spawned([*SERVER, "--model", str(tiny_model(tmp_path)), "--port", "0"]) as process:
        assert "is served" in said(process)
        process.send_signal(2)
        _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (-2, b"")
