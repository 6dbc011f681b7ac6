"""The engines that serve a local model: the commands of those that are started, and the fields of their requests.

Sources: the engines' own documentation and, where that is silent, their source: vLLM's ``CompletionRequest`` and ``vllm
serve``; SGLang's and LMDeploy's ``CompletionRequest``; Ollama's API. llama.cpp's row is what its server was seen to do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, did_you_mean, install_command
from lazyprompt.modules.clients.ollama import connect_generate
from lazyprompt.modules.clients.openai import CompletionsClient, Server

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.clients._base import OfficialClient, Settings

HOST: Final = "127.0.0.1"  # the address that started engines listen at

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_HERE = Path(__file__).parent
_OPTION = re.compile(r"[A-Za-z][\w.-]*")
# owner/name, as model hubs write it, and name:tag or owner/name:tag, as Ollama does
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_TAG = re.compile(r"[\w-][\w./-]*:[\w.-]+")


class AnswerIds(NamedTuple):
    """The way to the token ids of an answer.

    Attributes:
        fields: The fields of the request that ask for them.
        place: Their place in the answer, and in each event of a stream.
    """

    fields: Mapping[str, Any]
    place: tuple[str | int, ...]


class Engine(NamedTuple):
    """An engine that serves a local model.

    Attributes:
        name: The name of the engine.
        program: The command that starts it, or () if the user starts it. ``{python}`` is this Python, ``{here}`` this
            directory, ``{model}``, ``{host}`` and ``{port}`` are the values of the call. Requests use the same model
            name.
        install: The command that installs it, if no extra does.
        extra: The extra that installs it.
        package: The package that must be installed, if the program is Python's.
        server: The details of its completions (``/v1/completions``), or None for Ollama's ``generate``.
        takes_ids: True if the prompt may be token ids. Ids are never changed: the engine adds no BOS, and nothing in
            them can become a special token that was none.
        body: Fields of each request. They keep special tokens in the text, if the engine has a field for that.
        no_bos: Fields that keep the engine from adding a BOS to a text that begins with one. None if it has no such
            field. If its tokenizer adds a BOS, the text's own must be left out, or ids be sent.
        answer_ids: The way to the token ids of an answer, or None if there is none. Without them a conversation goes
            on as text.
    """

    name: str
    program: tuple[str, ...] = ()
    install: str = ""
    extra: str = ""
    package: str = ""
    server: Server | None = Server()
    takes_ids: bool = False
    body: Mapping[str, Any] = _NOTHING
    no_bos: Mapping[str, Any] | None = None
    answer_ids: AnswerIds | None = None

    @property
    def install_advice(self) -> str:
        """The command that installs it, or an empty text."""
        return install_command(self.extra) if self.extra else self.install

    def command(self, model: str, port: int, options: Mapping[str, object] = _NOTHING) -> tuple[str, ...]:
        """Return the command line.

        Args:
            model: The model, as the engine knows it.
            port: The port to listen at.
            options: Its own options by name: ``max_model_len=4096`` is ``--max-model-len 4096``, True the name alone,
                False ``--no-`` and the name, a list several values, a mapping JSON, None nothing.

        Returns:
            The program and its arguments.

        Raises:
            EngineError: An option has no name of an option or no such value, or is set by the call itself.
        """
        if model.startswith("-"):
            raise EngineError(f"a model's name does not begin with a hyphen, as {model!r} does")
        ours = {piece.lstrip("-") for piece in self.program if piece.startswith("--")}
        for name in options:
            if not _OPTION.fullmatch(name):
                raise EngineError(f"{name!r} is no name of an option of {self.name}")
            if name.replace("_", "-").lower() in ours:
                raise EngineError(
                    f"the option {name} of {self.name} is set already: model and port are given by themselves, and it"
                    " listens at this machine alone"
                )
        slots = {"here": _HERE, "python": sys.executable, "model": model, "host": HOST, "port": port}
        return (*(piece.format_map(slots) for piece in self.program), *_arguments(options))

    def connect(self, settings: Settings) -> OfficialClient:
        """Return a client for it, which sends stop strings and JSON schemas as this engine takes them.

        Args:
            settings: The settings of the client; ``base_url`` is the engine's scheme, host and port.
        """
        if self.server is None:
            return connect_generate(settings)
        return CompletionsClient(settings._replace(base_url=f"{settings.base_url}/v1"), self.server)

    def params(self, *further: Mapping[str, Any], own_bos: bool = False) -> dict[str, Any]:
        """Return the arguments of the client's call besides model and prompt.

        Args:
            further: More arguments of the call, as the client's ``params`` and ``structured`` return them. Their
                ``extra_body`` are put together.
            own_bos: True if the prompt is text that begins with a BOS of its own.
        """
        known = {key: value for more in further for key, value in more.items() if key != "extra_body"}
        body = {**self.body, **((self.no_bos or _NOTHING) if own_bos else _NOTHING)}
        body |= {key: value for more in further for key, value in more.get("extra_body", {}).items()}
        return known | ({"extra_body": body} if body else {})

    def executable(self) -> str | None:
        """Return the path of its program: beside this Python, else on ``PATH``; None if it is not installed."""
        if self.package:
            return sys.executable if find_spec(self.package) else None
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return shutil.which(self.program[0], path=beside)

    def __reduce__(self) -> tuple[Callable[[str], Engine], tuple[str]]:
        return engine_named, (self.name,)


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """Yield options as a command line has them."""
    for name, value in options.items():
        if value is None:
            continue
        dashed = name.replace("_", "-")
        yield f"--no-{dashed}" if value is False else f"--{dashed}"
        if isinstance(value, (list, tuple)):
            yield from map(_text, cast("list[object]", value))
        elif not isinstance(value, bool):
            yield _text(value)


def _text(value: object) -> str:
    """Return a value as engines read it."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, (bool, Mapping)):
        return json.dumps(value, default=_text)
    if isinstance(value, (str, int, float, Path)):
        return str(value)
    raise EngineError(
        f"an option is text, a number, a truth value, a path, a mapping or a list of these, not {value!r}"
    )


def _llama_cpp_schema(schema: JsonObject, _: str) -> dict[str, Any]:
    return {"extra_body": {"json_schema": schema}}


def _vllm_schema(schema: JsonObject, _: str) -> dict[str, Any]:
    return {"extra_body": {"structured_outputs": {"json": schema}}}


def _sglang_schema(schema: JsonObject, _: str) -> dict[str, Any]:
    return {"extra_body": {"json_schema": json.dumps(schema)}}


_WITH_SPECIAL: Final = MappingProxyType({"skip_special_tokens": False})
_AS_WRITTEN: Final = MappingProxyType({"skip_special_tokens": False, "spaces_between_special_tokens": False})
_IDS_OF_CHOICE: Final = AnswerIds(MappingProxyType({"return_token_ids": True}), ("choices", 0, "token_ids"))

_ROWS = (
    Engine(
        name="llama.cpp",
        program=(
            # The file: of modules named with -m, one in the working directory would come first.
            *("{python}", "-P", "{here}/llamacpp_server.py"),
            *("--model", "{model}", "--port", "{port}", "--special"),
        ),
        package="xllamacpp",
        extra="local",
        server=Server(usage=True, structured=_llama_cpp_schema),
        takes_ids=True,
        answer_ids=AnswerIds(MappingProxyType({"return_tokens": True, "verbose": True}), ("__verbose", "tokens")),
    ),
    Engine(
        name="vllm",
        program=("vllm", "serve", "{model}", "--host", "{host}", "--port", "{port}"),
        install="pip install vllm",
        server=Server(usage=True, structured=_vllm_schema),
        takes_ids=True,
        body=_AS_WRITTEN,
        no_bos=MappingProxyType({"add_special_tokens": False}),
        answer_ids=_IDS_OF_CHOICE,
    ),
    Engine(
        name="sglang",
        server=Server(usage=True, structured=_sglang_schema),
        takes_ids=True,
        body=_WITH_SPECIAL,
        answer_ids=_IDS_OF_CHOICE,
    ),
    # It takes no ids at this path (InternLM/lmdeploy#4186), and only stop strings that are one token.
    Engine(name="lmdeploy", server=Server(usage=True), body=_AS_WRITTEN),
    Engine(name="ollama", server=None),
    # Any other server of OpenAI's completions, such as transformers or TGI. It is sent no field that it might refuse.
    Engine(name="other"),
)

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _ROWS})
OTHER: Final = ENGINES["other"]


def engine_named(name: str) -> Engine:
    """Return the engine of a name.

    Args:
        name: As in `ENGINES`; case and dots do not count.

    Returns:
        The engine.

    Raises:
        EngineError: There is none of that name.
    """
    plain = {known.replace(".", ""): engine for known, engine in ENGINES.items()}
    engine = plain.get(re.sub(r"[._-]", "", name.lower()))
    if engine is None:
        raise EngineError(f"there is no engine {name!r}{did_you_mean(name, ENGINES)}; there are {', '.join(ENGINES)}")
    return engine


def engine_for(model: str | Path) -> Engine:
    """Return the engine that serves a model if none is named.

    Args:
        model: A GGUF file, the directory of a model, ``owner/name`` at a hub, or Ollama's ``name:tag``.

    Returns:
        llama.cpp for a GGUF file, Ollama for ``name:tag``, else vLLM.

    Raises:
        EngineError: It is none of these.
    """
    name, path = os.fspath(model), Path(model)
    if path.is_dir():
        return _for_directory(path)
    if path.suffix.lower() == ".gguf":
        if path.is_file():
            return ENGINES["llama.cpp"]
        raise EngineError(f"there is no file {name}")
    if path.exists():
        raise EngineError(f"{name} is neither a GGUF file nor the directory of a model")
    if _REPOSITORY.fullmatch(name):
        if "gguf" in name.lower():
            raise EngineError(f"{name} has GGUF files at its hub: download one, and give its path")
        return ENGINES["vllm"]
    if _TAG.fullmatch(name):
        return ENGINES["ollama"]
    raise EngineError(
        f"which engine serves {name!r} is not to be seen: it is no GGUF file, no directory, no owner/name at a hub"
        f" and no name:tag of Ollama; name the engine, one of {', '.join(ENGINES)}"
    )


def _for_directory(path: Path) -> Engine:
    if (path / "config.json").is_file():
        return ENGINES["vllm"]
    files = sorted(file.name for file in path.glob("*.gguf"))
    if files:
        raise EngineError(f"{path} is a directory with GGUF files; give the path of one: {', '.join(files)}")
    raise EngineError(f"{path} is no directory of a model: it has no config.json")
