"""Pickles of public objects run only plain constructors when they are loaded, and contain no secrets.

Related tests: tests/_base/test_secret.py, tests/files/test_environment_texts.py and library/test_library.py,
tests/modules/test_online_settings.py (the pickled settings of a module).
"""

import copy
import os
import pickle
import pickletools
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lazyprompt as lp
from lazyprompt import OnlineChatModule, PromptLibrary, Prompty, TrainableModule

KEY = "sk-never-in-a-pickle-1234"
# The other names in pickles of this package: constructors that run no custom code.
PLAIN = {
    *(("builtins", name) for name in ("frozenset", "set", "object")),
    *(("__builtin__", name) for name in ("frozenset", "set", "object")),
    *(("pathlib", "PosixPath"), ("pathlib", "WindowsPath"), ("pathlib._local", "PosixPath")),
    *(("copyreg", "_reconstructor"), ("copyreg", "__newobj__"), ("re", "_compile")),
    *(("functools", "partial"), ("operator", "itemgetter"), ("collections", "OrderedDict")),
    ("types", "MappingProxyType"),
}


def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The city.
    """
    return city


def load_file(tmp_path: Path) -> object:
    (tmp_path / "a.prompty").write_text(
        "---\nmodel:\n  id: gpt-4o\n  connection: {apiKey: '${env:LP_KEY}', endpoint: 'https://${env:LP_KEY}.x'}\n"
        "inputs: {q: {kind: string, default: '${env:LP_KEY}'}}\n---\nsystem:\nBe kind.\nuser:\n{{ q }}"
    )
    return Prompty.load(tmp_path / "a.prompty")


def load_library(tmp_path: Path) -> object:
    load_file(tmp_path)
    library = PromptLibrary(tmp_path)
    library.get("a")
    return library


MADE: dict[str, Callable[[Path], object]] = {
    "alpaca": lambda _: lp.AlpacaPrompter("Sum up {text}.", extra_keys="more"),
    "chat": lambda _: lp.ChatPrompter("Use {q}.", tools=[weather], history=[["a", "b"]]).with_markers("qwen2.5"),
    "jinja": lambda _: lp.ChatPrompter("Use {{ q }}{% if a %}!{% endif %}.", syntax="jinja2"),
    "empty": lambda _: lp.EmptyPrompter(),
    "few shot": lambda _: lp.FewShotTemplate("", [{"a": "b"}], "{a}", ""),
    "template": lambda _: lp.ChatTemplate.load("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"),
    "rendered": lambda _: lp.ChatPrompter("Use {q}.").render({"q": "x"}),
    "messages": lambda _: lp.messages_from([["a", "b"], {"role": "user", "content": "c"}]),
    "formatter": lambda _: lp.ChatFormatter("anthropic", media=lp.MediaResolver(hosts=["example.com"])),
    "agents": lambda _: lp.MultiAgentFormatter("gemini"),
    "counter": lambda _: lp.ApproximateTokenCounter(),
    "characters": lambda _: lp.CharTokenCounter(),
    "budget": lambda _: lp.Budget(100, lp.CharTokenCounter()),
    "file": load_file,
    "prompter of a file": lambda tmp_path: load_file(tmp_path).prompter,  # type: ignore[attr-defined]
    "library": load_library,
    "trusted": lambda _: lp.Trusted("x"),
    "error": lambda _: lp.SafetyError("'q' holds"),
}
EVERY = pytest.mark.parametrize("name", MADE)


def pickled_names(data: bytes) -> set[tuple[str, str]]:
    """The names that a pickle looks up when it is loaded."""
    found: set[tuple[str, str]] = set()
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            found.add((module, name))
        elif opcode.name == "STACK_GLOBAL":
            found.add((texts[-2], texts[-1]))
        elif "UNICODE" in opcode.name:
            texts.append(str(argument))
    return found


class Hostile:
    """An object whose pickle calls ``print`` when it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return print, ("run",)


def test_loading_a_hostile_pickle_calls_the_function_that_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    """The naive version: loading an untrusted pickle calls any function that it names."""
    data = pickle.dumps(Hostile())
    assert pickled_names(data) == {("builtins", "print")}
    pickle.loads(data)  # noqa: S301 - that is the naive version
    assert capsys.readouterr().out == "run\n"


@pytest.fixture
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LP_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@EVERY
@pytest.mark.usefixtures("_key")
def test_pickles_name_only_lazyprompt_classes_and_plain_constructors(name: str, tmp_path: Path) -> None:
    """The naive version, ``pickle.dumps(vars(made))`` of an object with a compiled template, names foreign classes."""
    # Protocol 2 has every name in full; later protocols refer to names that came before.
    data = pickle.dumps(MADE[name](tmp_path), protocol=2)
    foreign = {each for each in pickled_names(data) - PLAIN if each[0].split(".")[0] != "lazyprompt"}
    assert foreign == set()


@EVERY
@pytest.mark.usefixtures("_key")
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickles_contain_no_environment_values(name: str, protocol: int, tmp_path: Path) -> None:
    """The naive version, a dict of the file's fields, contains the key: it was in the pickle of each prompt file."""
    assert KEY.encode() in pickle.dumps({"apiKey": os.environ["LP_KEY"]})
    made = MADE[name](tmp_path)
    data = pickle.dumps(made, protocol)
    assert KEY.encode() not in data
    assert type(pickle.loads(data)) is type(made)  # noqa: S301 - our own bytes


@pytest.mark.parametrize("userinfo", ["me:p4ssw0rd@", "p4ssw0rd@", ":p4ssw0rd@"])
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("source", ["openai", "ollama", "gemini", "local vllm", "local ollama"])
def test_pickling_a_module_with_a_password_in_its_url_is_refused(
    userinfo: str, protocol: int, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The naive version keeps the URL as text: its password was in the pickle."""
    url = f"http://{userinfo}127.0.0.1:9/v1"
    make: Callable[[], Any] = partial(OnlineChatModule, source, model="m", base_url=url)
    if source.startswith("local"):
        make = partial(TrainableModule, "m", engine=source.removeprefix("local "), url=url, markers="chatml")
    for module in (make(), copy.copy(make()), copy.deepcopy(make()), make().share("Hi")):
        with pytest.raises(TypeError, match="a URL with a password can.t be pickled") as caught:
            pickle.dumps(module, protocol)
        assert "p4ssw0rd" not in f"{caught.value}{module!r}{vars(module)}"
    with caplog.at_level("INFO", "lazyprompt"):
        TrainableModule("m", engine="ollama", url=url, markers="chatml").start()
    assert "is managed elsewhere" in caplog.text
    assert "p4ssw0rd" not in caplog.text
    # A module without a password in its URL can be pickled.
    plain = OnlineChatModule("openai", model="m", base_url="http://127.0.0.1:9/v1/a@b")
    assert b"127.0.0.1:9" in pickle.dumps(plain, protocol)


def test_package_source_loads_no_pickles() -> None:
    """The naive version caches objects in pickle files, and loads whatever such a file contains."""
    loads = re.compile(r"\b(?:pickle\.loads?\b|Unpickler|shelve|dill)|^\s*from pickle\b", re.MULTILINE)
    assert loads.search("plan = pickle.loads(data)")
    sources = Path(lp.__file__).parent.rglob("*.py")
    assert [each.name for each in sources if loads.search(each.read_text(encoding="utf-8"))] == []


def test_loading_a_pickle_imports_only_lazyprompt_and_the_standard_library(tmp_path: Path) -> None:
    data = pickle.dumps(lp.ChatPrompter("Use {q}."))
    (tmp_path / "p").write_bytes(data)
    code = (
        "import pickle, sys; before = set(sys.modules); pickle.load(open(sys.argv[1], 'rb'));"
        "print(sorted({n.split('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, str(tmp_path / "p")], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "['lazyprompt']"
