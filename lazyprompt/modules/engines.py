"""Definitions of inference engines for local models: their start commands and request fields.

Sources: the documentation and source code of vLLM (``vllm serve``, ``CompletionRequest``), SGLang and LMDeploy (both
``CompletionRequest``), Ollama's API reference, and the observed behaviour of llama.cpp's server.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lazyprompt._base.json import is_sequence
from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, did_you_mean, install_command
from lazyprompt.modules.clients.ollama import connect_generate
from lazyprompt.modules.clients.openai import CompletionsClient, Server

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.clients._base import ClientSettings, OfficialClient

HOST: Final = "127.0.0.1"  # the address on which engines listen

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_HERE = Path(__file__).parent
_OPTION = re.compile(r"[A-Za-z][\w.-]*")
# Patterns for a repository on a model hub (owner/name), and for an Ollama model (name:tag or owner/name:tag).
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_TAG = re.compile(r"[\w-][\w./-]*:[\w.-]+")


class AnswerIds(NamedTuple):
    """The location of token ids in a response.

    Attributes:
        fields: The request fields that ask the engine to return token ids.
        place: The path of keys and indexes to the token ids in a response and in each stream event.
    """

    fields: Mapping[str, Any]
    place: tuple[str | int, ...]


class Engine(NamedTuple):
    """An inference engine that serves a local model.

    Attributes:
        name: The name of the engine.
        program: The command that starts the engine, or an empty tuple if the user starts it. ``{python}`` is the
            running Python interpreter, and ``{here}`` is the directory of this module. ``{model}`` and ``{port}`` are
            the arguments of :meth:`command`, and ``{host}`` is :data:`HOST`.
        install: The installation command for an engine that no lazyprompt extra installs.
        extra: The lazyprompt extra that installs the engine.
        package: The Python package that must be installed to run ``program``.
        server: The details of the engine's completions API (``/v1/completions``), or None for Ollama's ``generate``.
        takes_ids: True if the engine accepts a prompt of token ids and adds no BOS token to it.
        body: The fields to add to every request, such as the field that keeps special tokens in responses.
        no_bos: The request fields that stop the engine from adding a BOS token to text that begins with one. If
            ``no_bos`` is None, lazyprompt removes the text's own BOS token when the engine adds another.
        answer_ids: The location of token ids in responses. If ``answer_ids`` is None, each prompt of a conversation
            is encoded again.
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
        """The command that installs the engine, or an empty string."""
        return install_command(self.extra) if self.extra else self.install

    def command(self, model: str, port: int, options: Mapping[str, object] = _NOTHING) -> tuple[str, ...]:
        """Return the command that starts the engine.

        Args:
            model: The model's path, or its name as the engine expects it.
            port: The port to listen on.
            options: The engine's command-line options. ``max_model_len=4096`` becomes ``--max-model-len 4096``. For an
                option ``x``, True adds ``--x`` and False adds ``--no-x``. A list such as ``[1, 2]`` adds ``--x 1 2``,
                and a mapping adds one JSON value. An option whose value is None is omitted.

        Returns:
            The program and its arguments.

        Raises:
            EngineError: The name or value of an option is invalid, or the command already sets the option.
        """
        if model.startswith("-"):
            raise EngineError(f"model names cannot begin with a hyphen: {model!r}")
        ours = {piece.lstrip("-") for piece in self.program if piece.startswith("--")}
        for name in options:
            if not _OPTION.fullmatch(name):
                raise EngineError(f"{name!r} is not a valid option name for {self.name}")
            if name.replace("_", "-").lower() in ours:
                raise EngineError(
                    f"lazyprompt already sets the option {name} of {self.name}; pass the model or port as an argument "
                    f"instead (the host is always {HOST})"
                )
        slots = {"here": _HERE, "python": sys.executable, "model": model, "host": HOST, "port": port}
        return (*(piece.format_map(slots) for piece in self.program), *_arguments(options))

    def connect(self, settings: ClientSettings) -> OfficialClient:
        """Return a client for the engine.

        Args:
            settings: The client's settings. The ``base_url`` consists of scheme, host and port.
        """
        if self.server is None:
            return connect_generate(settings)
        return CompletionsClient(settings._replace(base_url=f"{settings.base_url}/v1"), self.server)

    def params(self, *further: Mapping[str, Any], own_bos: bool = False) -> dict[str, Any]:
        """Return the arguments for the client's completion method, except the model and the prompt.

        Args:
            further: The argument dicts that the client's ``params`` and ``structured`` methods return. The
                ``extra_body`` fields of these dicts are merged.
            own_bos: True if the prompt is text that begins with a BOS token.
        """
        known = {key: value for more in further for key, value in more.items() if key != "extra_body"}
        body = {**self.body, **((self.no_bos or _NOTHING) if own_bos else _NOTHING)}
        body |= {key: value for more in further for key, value in more.get("extra_body", {}).items()}
        return known | ({"extra_body": body} if body else {})

    def executable(self) -> str | None:
        """Return the path of the engine's program, or None if it is not installed."""
        if self.package:
            return sys.executable if find_spec(self.package) else None
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return shutil.which(self.program[0], path=beside)

    def __reduce__(self) -> tuple[Callable[[str], Engine], tuple[str]]:
        return engine_named, (self.name,)


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """Convert options to command-line arguments."""
    for name, value in options.items():
        if value is None:
            continue
        dashed = name.replace("_", "-")
        yield f"--no-{dashed}" if value is False else f"--{dashed}"
        if is_sequence(value):
            yield from map(_text, value)
        elif not isinstance(value, bool):
            yield _text(value)


def _text(value: object) -> str:
    """Convert the value of an option to text."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, (bool, Mapping)):
        return json.dumps(value, default=_text)
    if isinstance(value, (str, int, float, Path)):
        return str(value)
    raise EngineError(f"options must be strings, numbers, bools, paths, mappings or lists of these, not {value!r}")


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
            # Don't use -m, because Python would prefer a module in the working directory.
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
    # LMDeploy's endpoint accepts no token ids (InternLM/lmdeploy#4186), and only single-token stop strings.
    Engine(name="lmdeploy", server=Server(usage=True), body=_AS_WRITTEN),
    Engine(name="ollama", server=None),
    # Other servers with OpenAI's completions API, such as TGI, receive only standard fields.
    Engine(name="other"),
)

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _ROWS})
OTHER: Final = ENGINES["other"]


def engine_named(name: str | Engine) -> Engine:
    """Return the engine with a given name.

    Args:
        name: A key of :data:`ENGINES`. Case, dots, hyphens and underscores are ignored. An engine is returned
            unchanged.

    Raises:
        EngineError: No engine has this name.
    """
    if not isinstance(name, str):
        return _checked_engine(name)
    plain = {known.replace(".", ""): engine for known, engine in ENGINES.items()}
    engine = plain.get(re.sub(r"[._-]", "", name.lower()))
    if engine is None:
        raise EngineError(f"unknown engine {name!r}{did_you_mean(name, ENGINES)}; expected one of {', '.join(ENGINES)}")
    return engine


def _checked_engine(given: object) -> Engine:
    if not isinstance(given, Engine):
        raise EngineError(f"engine must be a name or an Engine, not {type(given).__name__}")
    return given


def engine_for(model: str | Path) -> Engine:
    """Return the default engine for a model.

    Args:
        model: A GGUF file, a model directory, ``owner/name`` on a model hub, or Ollama's ``name:tag``.

    Returns:
        The llama.cpp engine for a GGUF file, Ollama for ``name:tag``, and vLLM for any other model.

    Raises:
        EngineError: The model's format is not supported, or the model file is missing.
    """
    name, path = os.fspath(model), Path(model)
    if path.is_dir():
        return _for_directory(path)
    if path.suffix.lower() == ".gguf":
        if path.is_file():
            return ENGINES["llama.cpp"]
        raise EngineError(f"file not found: {name}")
    if path.exists():
        raise EngineError(f"{name} is neither a GGUF file nor a model directory")
    if _REPOSITORY.fullmatch(name):
        if "gguf" in name.lower():
            raise EngineError(f"{name} is a hub repository of GGUF files; download one and pass its path")
        return ENGINES["vllm"]
    if _TAG.fullmatch(name):
        return ENGINES["ollama"]
    raise EngineError(
        f"cannot choose an engine for {name!r}: the model is neither a GGUF file, a directory, owner/name on a model "
        f"hub nor Ollama's name:tag; set engine= to one of {', '.join(ENGINES)}"
    )


def _for_directory(path: Path) -> Engine:
    if (path / "config.json").is_file():
        return ENGINES["vllm"]
    files = sorted(file.name for file in path.glob("*.gguf"))
    if files:
        raise EngineError(f"{path} is a directory of GGUF files; pass the path of one of them: {', '.join(files)}")
    raise EngineError(f"{path} is not a model directory: it contains no config.json")
