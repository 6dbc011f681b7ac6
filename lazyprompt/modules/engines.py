"""The engines that serve a local model: their commands, checks of health, and fields of requests.

One row for each, in `ENGINES`. Sources: the engines' own documentation and, where that is silent, their source:
vLLM's ``CompletionRequest`` and ``vllm serve``; ``transformers/cli/serve.py`` and ``serving/completion.py`` (5.23);
SGLang's ``CompletionRequest`` and server arguments; LMDeploy's ``CompletionRequest`` and ``lmdeploy serve api_server``;
TGI's launcher reference and guidance; Ollama's API and FAQ. llama.cpp's row is what its server was seen to do.
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
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, did_you_mean

if TYPE_CHECKING:
    from lazyprompt.modules.clients._base import OfficialClient, Settings

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
    """An engine. All answer 200 below ``health`` once the model can be asked, and not before.

    Attributes:
        name: Its name.
        program: The command that starts it; ``{python}`` is this Python, ``{here}`` this directory, and ``{model}``,
            ``{host}`` and ``{port}`` what the call says. The model has the same name in requests.
        install: How it is installed.
        environment: Variables of its environment, with the same slots.
        variables: Where the engine takes its options from the environment: what their names begin with there.
        package: The package that must be installed, where the program is Python's.
        health: The path that tells whether it is ready.
        client: Its client: ``module:function`` in ``clients/``.
        path: What the client's base URL has behind host and port.
        carrier: The argument of the client's call that carries the fields which the client does not know; empty where
            they are arguments themselves.
        takes_ids: True if the prompt may be token ids. Ids are never changed: no BOS is added, and nothing in them can
            become a special token that was none.
        body: Fields of each request. They leave special tokens in the text, where the engine takes that by request.
        no_bos: Fields that keep the engine from putting a BOS before a text that begins with one. None if it takes no
            such field: if its tokenizer adds one, the text's own must be left out, or ids be sent.
        answer_ids: The way to the token ids of an answer; None where there is none. What does not come is not missed:
            a conversation goes on as text then.
    """

    name: str
    program: tuple[str, ...]
    install: str
    environment: Mapping[str, str] = _NOTHING
    variables: str = ""
    package: str = ""
    health: str = "/health"
    client: str = "openai:connect_completions"
    path: str = "/v1"
    carrier: str = "extra_body"
    takes_ids: bool = False
    body: Mapping[str, Any] = _NOTHING
    no_bos: Mapping[str, Any] | None = None
    answer_ids: AnswerIds | None = None

    def command(self, model: str, host: str, port: int, options: Mapping[str, object] = _NOTHING) -> tuple[str, ...]:
        """Return the command line.

        Args:
            model: The model, as the engine knows it.
            host: The address it is to listen at.
            port: The port.
            options: Its own options by name: ``max_model_len=4096`` is ``--max-model-len 4096``, True the name alone,
                False ``--no-`` and the name, a list several values, a mapping JSON, None nothing.

        Returns:
            The program and its arguments.

        Raises:
            EngineError: An option has no name of an option or no such value, or is set by the call itself.
        """
        if model.startswith("-"):
            raise EngineError(f"a model's name does not begin with a hyphen, as {model!r} does")
        slots = {"here": _HERE, "python": sys.executable, "model": model, "host": host, "port": port}
        program = [piece.format_map(slots) for piece in self.program]
        given = self._given(options)
        return (*program, *(() if self.variables else _arguments(given)))

    def variables_for(self, host: str, port: int, options: Mapping[str, object] = _NOTHING) -> dict[str, str]:
        """Return the variables that it needs in its environment.

        Args:
            host: The address it is to listen at.
            port: The port.
            options: As :meth:`command` has them.

        Returns:
            The variables.

        Raises:
            EngineError: As :meth:`command`.
        """
        own = {name: value.format(host=host, port=port) for name, value in self.environment.items()}
        given = self._given(options) if self.variables else {}
        return own | {
            f"{self.variables}{name.replace('-', '_').upper()}": _text(value) for name, value in given.items()
        }

    def connect(self, settings: Settings) -> OfficialClient:
        """Return a client for it, which sends stop strings and JSON schemas as this engine takes them.

        Args:
            settings: The settings of the client.

        Returns:
            The client.
        """
        connect: Callable[..., OfficialClient] = resolve_name(f"lazyprompt.modules.clients.{self.client}")
        return connect(settings, self.name) if self.carrier else connect(settings)

    def params(self, *further: Mapping[str, Any], own_bos: bool = False) -> dict[str, Any]:
        """Return the arguments of the client's call besides model and prompt.

        Args:
            further: More arguments of the call, as the client's ``params`` and ``structured`` give them; the fields
                that the client does not know are put together.
            own_bos: True if the prompt is text that begins with a BOS of its own.

        Returns:
            The arguments.
        """
        fields = {**self.body, **((self.no_bos or _NOTHING) if own_bos else _NOTHING)}
        if not self.carrier:
            return {key: value for arguments in (fields, *further) for key, value in arguments.items()}
        carried = {**fields, **{key: value for more in further for key, value in more.get(self.carrier, {}).items()}}
        known = {key: value for more in further for key, value in more.items() if key != self.carrier}
        return known | ({self.carrier: carried} if carried else {})

    def installed(self) -> bool:
        """Return True if it can be started here: its package can be imported, or its program is found."""
        return self.executable() is not None

    def executable(self) -> str | None:
        """Return the path of its program: beside this Python, else on ``PATH``; None if it is not installed."""
        if self.package:
            return sys.executable if find_spec(self.package) else None
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return shutil.which(self.program[0], path=beside)

    def __reduce__(self) -> tuple[Callable[[str], Engine], tuple[str]]:
        return engine_named, (self.name,)

    def _given(self, options: Mapping[str, object]) -> dict[str, object]:
        """Return the options that have a value, checked."""
        ours = {piece.lstrip("-") for piece in self.program if piece.startswith("--")}
        ours |= {name.removeprefix(self.variables).lower() for name in self.environment}
        for name in options:
            if not _OPTION.fullmatch(name):
                raise EngineError(f"{name!r} is no name of an option of {self.name}")
            if name.replace("_", "-").lower() in ours:
                raise EngineError(
                    f"the option {name} of {self.name} is set already: model and port are given by themselves, and it"
                    " listens at this machine alone"
                )
        return {name: value for name, value in options.items() if value is not None}


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """Yield options as a command line has them."""
    for name, value in options.items():
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


_WITH_SPECIAL: Final = MappingProxyType({"skip_special_tokens": False})
_AS_WRITTEN: Final = MappingProxyType({"skip_special_tokens": False, "spaces_between_special_tokens": False})
_IDS_OF_CHOICE: Final = AnswerIds(MappingProxyType({"return_token_ids": True}), ("choices", 0, "token_ids"))

_ROWS = (
    Engine(
        name="llama.cpp",
        program=(
            # The file: of modules named with -m, one in the working directory would come first.
            *("{python}", "-P", "{here}/llamacpp_server.py"),
            *("--model", "{model}", "--host", "{host}", "--port", "{port}", "--special"),
        ),
        package="xllamacpp",
        install='pip install "lazyprompt[local]"',
        takes_ids=True,
        answer_ids=AnswerIds(MappingProxyType({"return_tokens": True, "verbose": True}), ("__verbose", "tokens")),
    ),
    Engine(
        name="vllm",
        program=("vllm", "serve", "{model}", "--host", "{host}", "--port", "{port}"),
        install="pip install vllm",
        takes_ids=True,
        body=_AS_WRITTEN,
        no_bos=MappingProxyType({"add_special_tokens": False}),
        answer_ids=_IDS_OF_CHOICE,
    ),
    Engine(
        name="transformers",
        program=("transformers", "serve", "{model}", "--host", "{host}", "--port", "{port}"),
        install='pip install "transformers[serving]"',
        # Any field that it does not know is refused (422), and special tokens are never in its text.
    ),
    Engine(
        name="sglang",
        program=(
            *("{python}", "-m", "sglang.launch_server"),
            *("--model-path", "{model}", "--host", "{host}", "--port", "{port}"),
        ),
        package="sglang",
        install='pip install "sglang[all]"',
        takes_ids=True,
        body=_WITH_SPECIAL,
        answer_ids=_IDS_OF_CHOICE,
    ),
    Engine(
        name="lmdeploy",
        program=("lmdeploy", "serve", "api_server", "{model}", "--server-name", "{host}", "--server-port", "{port}"),
        install="pip install lmdeploy",
        # It takes no ids at this path (InternLM/lmdeploy#4186), and only stop strings that are one token.
        body=_AS_WRITTEN,
    ),
    Engine(
        name="tgi",
        program=("text-generation-launcher", "--model-id", "{model}", "--hostname", "{host}", "--port", "{port}"),
        install="see https://huggingface.co/docs/text-generation-inference/installation, there is no package of it",
        client="tgi:connect",
        path="",
        carrier="",
        # Special tokens are in the tokens of its details alone, never in its text.
    ),
    Engine(
        name="ollama",
        program=("ollama", "serve"),  # the model is named by the requests, and loaded by the first
        environment=MappingProxyType({"OLLAMA_HOST": "{host}:{port}"}),
        variables="OLLAMA_",
        install="see https://ollama.com/download",
        health="/api/version",
        client="ollama:connect_generate",
        path="",
        carrier="",
    ),
)

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _ROWS})
# Whatever runs somewhere and has OpenAI's completions; it is sent nothing that it might refuse.
OTHER: Final = Engine(name="other", program=(), install="")


def engine_named(name: str) -> Engine:
    """Return the engine of a name.

    Args:
        name: As in `ENGINES`; case and dots do not count.

    Returns:
        The engine.

    Raises:
        EngineError: There is none of that name.
    """
    plain = {known.replace(".", ""): engine for known, engine in (*ENGINES.items(), (OTHER.name, OTHER))}
    engine = plain.get(re.sub(r"[._-]", "", name.lower()))
    if engine is None:
        raise EngineError(f"there is no engine {name!r}{did_you_mean(name, ENGINES)}; there are {', '.join(ENGINES)}")
    return engine


def engine_for(model: str | Path) -> Engine:
    """Return the engine that serves a model if none is named.

    Args:
        model: A GGUF file, the directory of a model, ``owner/name`` at a hub, or Ollama's ``name:tag``.

    Returns:
        llama.cpp for a GGUF file, Ollama for ``name:tag``; else vLLM if it is installed, and transformers if not.

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
        return _for_weights()
    if _TAG.fullmatch(name):
        return ENGINES["ollama"]
    raise EngineError(
        f"which engine serves {name!r} is not to be seen: it is no GGUF file, no directory, no owner/name at a hub"
        f" and no name:tag of Ollama; name the engine, one of {', '.join(ENGINES)}"
    )


def _for_directory(path: Path) -> Engine:
    if (path / "config.json").is_file():
        return _for_weights()
    files = sorted(file.name for file in path.glob("*.gguf"))
    if files:
        raise EngineError(f"{path} is a directory with GGUF files; give the path of one: {', '.join(files)}")
    raise EngineError(f"{path} is no directory of a model: it has no config.json")


def _for_weights() -> Engine:
    return ENGINES["vllm"] if ENGINES["vllm"].installed() else ENGINES["transformers"]
