"""The engines that serve local models: the commands that start them, and the fields of their requests.

Sources: the engines' documentation and source code (vLLM's ``CompletionRequest`` and ``vllm serve``, SGLang's and
LMDeploy's ``CompletionRequest``), Ollama's API, and the observed behaviour of llama.cpp's server.
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

HOST: Final = "127.0.0.1"  # the address on which started engines listen

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_HERE = Path(__file__).parent
_OPTION = re.compile(r"[A-Za-z][\w.-]*")
# A hub's owner/name, and Ollama's name:tag or owner/name:tag.
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_TAG = re.compile(r"[\w-][\w./-]*:[\w.-]+")


class AnswerIds(NamedTuple):
    """The location of token ids in an answer.

    Attributes:
        fields: The fields of the request that ask for the ids.
        place: The path of the ids in the answer, and in each event of a stream.
    """

    fields: Mapping[str, Any]
    place: tuple[str | int, ...]


class Engine(NamedTuple):
    """An engine that serves a local model.

    Attributes:
        name: The name of the engine.
        program: The command that starts it, or () if the user starts it. ``{python}`` is this Python, ``{here}`` this
            directory; ``{model}``, ``{host}`` and ``{port}`` are the values of the call.
        install: The command that installs it, if no extra does.
        extra: The extra that installs it.
        package: The Python package of the program, which must be installed.
        server: The details of its completions (``/v1/completions``), or None for Ollama's ``generate``.
        takes_ids: True if the prompt may be token ids. The engine adds no BOS to ids.
        body: Fields of each request, which keep special tokens in the text if the engine has a field for that.
        no_bos: Fields that keep the engine from adding a BOS to a text that begins with one, or None. Without them, and
            with a tokenizer that adds a BOS, the text's own BOS is left out.
        answer_ids: The location of token ids in answers, or None. Without them a conversation continues as text.
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
        """The command that installs it, or an empty string."""
        return install_command(self.extra) if self.extra else self.install

    def command(self, model: str, port: int, options: Mapping[str, object] = _NOTHING) -> tuple[str, ...]:
        """Return the command line.

        Args:
            model: The engine's name or path of the model.
            port: The port to listen on.
            options: The engine's options by name. ``max_model_len=4096`` becomes ``--max-model-len 4096``. True is the
                name alone, False ``--no-`` and the name, a list several values, a mapping JSON; None is left out.

        Returns:
            The program and its arguments.

        Raises:
            EngineError: The name or value of an option is invalid, or the call sets the option itself.
        """
        if model.startswith("-"):
            raise EngineError(f"a model's name cannot begin with a hyphen: {model!r}")
        ours = {piece.lstrip("-") for piece in self.program if piece.startswith("--")}
        for name in options:
            if not _OPTION.fullmatch(name):
                raise EngineError(f"{name!r} is not a valid option name for {self.name}")
            if name.replace("_", "-").lower() in ours:
                raise EngineError(
                    f"the option {name} of {self.name} is already set: model and port have arguments of their own, and"
                    " the engine listens on this machine only"
                )
        slots = {"here": _HERE, "python": sys.executable, "model": model, "host": HOST, "port": port}
        return (*(piece.format_map(slots) for piece in self.program), *_arguments(options))

    def connect(self, settings: ClientSettings) -> OfficialClient:
        """Return a client for the engine.

        Args:
            settings: The settings of the client; ``base_url`` is the engine's scheme, host and port.
        """
        if self.server is None:
            return connect_generate(settings)
        return CompletionsClient(settings._replace(base_url=f"{settings.base_url}/v1"), self.server)

    def params(self, *further: Mapping[str, Any], own_bos: bool = False) -> dict[str, Any]:
        """Return the arguments of the client's call besides model and prompt.

        Args:
            further: Arguments that the client's ``params`` and ``structured`` return; their ``extra_body`` are merged.
            own_bos: True if the prompt is text that begins with a BOS.
        """
        known = {key: value for more in further for key, value in more.items() if key != "extra_body"}
        body = {**self.body, **((self.no_bos or _NOTHING) if own_bos else _NOTHING)}
        body |= {key: value for more in further for key, value in more.get("extra_body", {}).items()}
        return known | ({"extra_body": body} if body else {})

    def executable(self) -> str | None:
        """Return the path of its program, next to this Python or on ``PATH``; None if it is not installed."""
        if self.package:
            return sys.executable if find_spec(self.package) else None
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return shutil.which(self.program[0], path=beside)

    def __reduce__(self) -> tuple[Callable[[str], Engine], tuple[str]]:
        return engine_named, (self.name,)


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """Yield options as arguments of a command line."""
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
    """Return a value as the text of an argument."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, (bool, Mapping)):
        return json.dumps(value, default=_text)
    if isinstance(value, (str, int, float, Path)):
        return str(value)
    raise EngineError(f"an option is text, a number, a bool, a path, a mapping or a list of these, not {value!r}")


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
            # Not -m: a module of that name in the working directory would be run instead.
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
    # It accepts no ids at this path (InternLM/lmdeploy#4186), and only stop strings of one token.
    Engine(name="lmdeploy", server=Server(usage=True), body=_AS_WRITTEN),
    Engine(name="ollama", server=None),
    # Any other server of OpenAI's completions, such as transformers or TGI; it gets no field that it might refuse.
    Engine(name="other"),
)

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _ROWS})
OTHER: Final = ENGINES["other"]


def engine_named(name: str) -> Engine:
    """Return the engine of a name.

    Args:
        name: A name of `ENGINES`; case and dots are ignored.

    Raises:
        EngineError: There is no such engine.
    """
    plain = {known.replace(".", ""): engine for known, engine in ENGINES.items()}
    engine = plain.get(re.sub(r"[._-]", "", name.lower()))
    if engine is None:
        raise EngineError(f"there is no engine {name!r}{did_you_mean(name, ENGINES)}; there are {', '.join(ENGINES)}")
    return engine


def engine_for(model: str | Path) -> Engine:
    """Return the default engine of a model.

    Args:
        model: A GGUF file, the directory of a model, ``owner/name`` at a hub, or Ollama's ``name:tag``.

    Returns:
        llama.cpp for a GGUF file, Ollama for ``name:tag``, else vLLM.

    Raises:
        EngineError: The model is none of these.
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
        f"cannot tell the engine of {name!r}: it is no GGUF file, no directory, no owner/name at a hub and no name:tag"
        f" of Ollama; name the engine, one of {', '.join(ENGINES)}"
    )


def _for_directory(path: Path) -> Engine:
    if (path / "config.json").is_file():
        return ENGINES["vllm"]
    files = sorted(file.name for file in path.glob("*.gguf"))
    if files:
        raise EngineError(f"{path} is a directory with GGUF files; give the path of one: {', '.join(files)}")
    raise EngineError(f"{path} is not the directory of a model: it has no config.json")
