"""llama.cpp's server as lazyprompt runs it: options, responses, and errors of wrong use."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import openai
import pytest
import urllib3

from lazyprompt.errors import install_command
from lazyprompt.modules import llamacpp_server
from lazyprompt.modules.process import EngineProcess
from support.engines import EOS, QUICK, SECONDS, next_line, python, spawn, tiny_model, tokenizer

slow = pytest.mark.slow  # engines

SERVER = python("-P", llamacpp_server.__file__)
GREEDY: dict[str, Any] = {"model": "m", "max_tokens": 8, "temperature": 0}


def test_options_set_the_fields_of_common_params_and_the_address_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    fields: dict[str, Any] = dict.fromkeys(("hostnames", "offline", "ui", "verbosity", "warmup"))
    fields |= {"endpoint_slots": True, "port": 8080, "n_ctx": 0, "n_parallel": 9, "special": False, "no_perf": False}
    fields |= {"cont_batching": True, "tags": set(), "alias": "", "cors_origins": ""}
    nested = {"model": ("path", ""), "cpuparams": ("n_threads", -1), "sampling": ("seed", 0)}
    made = SimpleNamespace(**fields, **{at: SimpleNamespace(**{name: now}) for at, (name, now) in nested.items()})
    package = SimpleNamespace(CommonParams=lambda: made, Server=lambda _: SimpleNamespace(listening_address="ADDRESS"))
    monkeypatch.setitem(sys.modules, "xllamacpp", cast("Any", package))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("time.sleep", lambda _: sys.exit(7))
    options = f"--model {model} --port=9 --context 5 --parallel 2 --threads 3 --seed 4 --special --no-perf --alias a=b"
    with pytest.raises(SystemExit, match="7"):
        llamacpp_server.main([*options.split(), "--no-cont-batching", "--tags", '["x"]'])
    assert capsys.readouterr() == (f"{model} is served at ADDRESS\n", "")
    assert (vars(made.model), vars(made.cpuparams)) == ({"path": str(model)}, {"n_threads": 3})
    fields = {"hostnames": ["127.0.0.1"], "cors_origins": "localhost", "offline": True, "ui": False, "verbosity": 2}
    fields |= {"warmup": False, "endpoint_slots": False, "port": 9, "n_ctx": 10, "n_parallel": 2, "special": True}
    fields |= {"no_perf": True, "cont_batching": False, "tags": {"x"}, "alias": "a=b"}
    assert vars(made) == {**vars(made), **fields, "sampling": SimpleNamespace(seed=4)}


class EngineClient:
    """The engine with OpenAI's official client."""

    def __init__(self, engine: EngineProcess) -> None:
        self.url = engine.url
        self.client = openai.OpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0, timeout=SECONDS)

    def complete(self, prompt: Any, **more: Any) -> openai.types.Completion:
        return cast("openai.types.Completion", self.client.completions.create(prompt=prompt, **{**GREEDY, **more}))

    def text(self, prompt: Any, **more: Any) -> str:
        return self.complete(prompt, **more).choices[0].text

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager(retries=False) as pool:
            return pool.request("GET", self.url + path, headers=headers)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    with EngineProcess("llama.cpp", tiny_model(tmp_path_factory.mktemp("model")), options=QUICK) as process:
        asked = EngineClient(process)
        with asked.client:
            yield asked


@slow
def test_response_text_includes_special_tokens(engine: EngineClient) -> None:
    start, end = (str(tokenizer().encode(token).ids[0]) for token in ("<|im_start|>", EOS))
    assert engine.text("x", logit_bias={start: 100}, max_tokens=2) == "<|im_start|>" * 2
    # The EOS token as well, unless it is a stop string.
    ended = engine.complete("x", logit_bias={end: 100})
    assert (ended.choices[0].text, ended.choices[0].finish_reason) == (EOS, "stop")
    assert engine.text("x", logit_bias={end: 100}, stop=[EOS]) == ""


@slow
def test_server_sends_no_cors_header_and_has_no_web_ui_or_slots_page(engine: EngineClient) -> None:
    assert "access-control-allow-origin" not in engine.get("/health", Origin="http://elsewhere.example").headers
    assert [engine.get(path).status for path in ("/health", "/", "/slots")] == [200, 404, 501]


def run_server(model: Path, *options: str) -> tuple[int | None, str, str]:
    """The exit code of a server, None if it serves, its first line and its error output."""
    with spawn([*SERVER, "--model", str(model), "--port", "0", *options]) as process:
        line = next_line(process)
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
@slow
def test_server_accepts_options_named_like_llama_cpp_fields(tmp_path: Path, options: list[str]) -> None:
    assert run_server(tiny_model(tmp_path), *options)[0] is None


@slow
def test_server_applies_a_chat_template_file(tmp_path: Path) -> None:
    template = tmp_path / "a template.jinja"
    template.write_text("{{ messages[0].content }}!", encoding="utf-8")
    options = {**QUICK, "chat_template": template}
    with EngineProcess("llama.cpp", tiny_model(tmp_path), options=options) as process, urllib3.PoolManager() as pool:
        body = {"messages": [{"role": "user", "content": "so"}]}
        assert pool.request("POST", process.url + "/apply-template", json=body).json() == {"prompt": "so!"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--n-bach", "64"], "llama.cpp has no option n_bach (did you mean n_batch?)"),
        (["--sampling.temperature", "1"], "llama.cpp has no option sampling.temperature"),
        (["--nothing.temp", "1"], "llama.cpp has no option nothing.temp"),
        (["--no-such"], "llama.cpp has no option no_such"),
        (["--__class__", "1"], "llama.cpp has no option __class__"),
        (["--n-batch", "many"], "the option n_batch does not accept 'many': expected JSON, such as the current value"),
        (["--n-batch", "1.5"], "the option n_batch does not accept '1.5': "),
        (["--n-batch", "99999999999"], "the option n_batch does not accept '99999999999': value too large"),
        (["--special", "1"], "the option special does not accept '1': expected true or false"),
        (["--model-alias", "3"], "the option model_alias does not accept '3': "),
        (["--split-mode", "x"], "the option split_mode does not accept 'x': expected one of none, layer, row, tensor"),
        (["--tensor-split", "[1]"], "the option tensor_split does not accept '[1]': tensor must of length 128"),
        (["--chat-template", "no/such"], "cannot read the chat template no/such: No such file or directory"),
        (["64"], "'64' is not an option; expected --name value"),
    ],
)
@slow
def test_invalid_option_prints_one_line(
    tmp_path: Path, options: list[str], error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = llamacpp_server.main(["--model", str(tiny_model(tmp_path)), "--port", "0", *options])
    line, errors = capfd.readouterr()
    assert (code, line) == (1, "")
    assert errors.startswith(f"llamacpp_server: {error}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"<html>not found</html>", " is not a GGUF file: it begins with b'<htm' instead of b'GGUF'"),
        (b"", " is not a GGUF file: it begins with b'' instead of b'GGUF'"),
        (None, ": No such file or directory"),
    ],
)
def test_invalid_gguf_file_prints_one_line(
    tmp_path: Path, content: bytes | None, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.gguf"
    if content is not None:
        model.write_bytes(content)
    code = llamacpp_server.main(["--model", str(model), "--port", "0"])
    line, errors = capfd.readouterr()
    assert (code, line) == (1, "")
    assert error in errors
    assert errors.count("\n") == 1


@slow
def test_missing_xllamacpp_prints_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert llamacpp_server.main(["--model", str(tiny_model(tmp_path)), "--port", "0"]) == 1
    advice = f"the xllamacpp package is not installed; install it with: {install_command('local')}"
    assert capfd.readouterr().err == f"llamacpp_server: {advice}\n"


@pytest.mark.parametrize("part", [0.001, 0.5])
@slow
def test_truncated_gguf_file_exits_without_a_traceback(tmp_path: Path, part: float) -> None:
    model = tiny_model(tmp_path)
    whole = model.read_bytes()
    model.write_bytes(whole[: int(len(whole) * part)])
    code, _, errors = run_server(model)
    assert code == 1
    assert f"llamacpp_server: llama.cpp cannot serve {model}; see the llama.cpp log for the reason\n" in errors
    assert " E llama_model_load: error loading model: " in errors
    assert "Traceback" not in errors


@slow
def test_invalid_chat_template_exits_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("{% if", encoding="utf-8")
    code, _, errors = run_server(tiny_model(tmp_path), "--chat-template", str(tmp_path / "t"))
    assert (code, "Unexpected EOF" in errors, "Traceback" in errors) == (1, True, False)


@slow
def test_ctrl_c_prints_no_traceback(tmp_path: Path) -> None:
    with spawn([*SERVER, "--model", str(tiny_model(tmp_path)), "--port", "0"]) as process:
        assert "is served" in next_line(process)
        process.send_signal(2)
        _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (-2, b"")
