"""The server of llama.cpp, from the package xllamacpp (the extra ``local``).

    python llamacpp_server.py --model MODEL.gguf --port N [--NAME VALUE ...]

:class:`lazyprompt.modules.process.EngineProcess` starts it. It listens at 127.0.0.1. These options have names of their
own: ``--context`` (tokens of prompt and answer of one request; by default the model's context, or less if the memory is
too small), ``--parallel`` (concurrent requests, default 1), ``--threads``, ``--seed`` and ``--chat-template FILE``. Any
other option is a field of llama.cpp's ``CommonParams``, with hyphens or underscores: ``--n-batch 256``, ``--special``
(true), ``--no-cont-batching`` (false), ``--sampling.temp 0``, ``--flash-attn-type enabled``. A wrong option or model is
reported in one line, and the exit code is 1.

Defaults differ from llama.cpp's: no web page, no list of current requests (it would show prompts), no access for web
pages of other origins, no downloads, no warm-up, and a log of warnings and errors only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib import import_module
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NoReturn

from lazyprompt._base.files import open_regular, read_regular
from lazyprompt._base.json import is_list
from lazyprompt.chat_templates.source import MAX_BYTES
from lazyprompt.errors import missing_extra, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MAGIC = b"GGUF"
_DAY = 86_400.0
_LOGGING = 0.5  # seconds that llama.cpp has for its last lines
# The fields of CommonParams that options with another name set.
_FIELDS = {
    "model": "model.path",
    "context": "n_ctx",
    "parallel": "n_parallel",
    "threads": "cpuparams.n_threads",
    "seed": "sampling.seed",
}
_DEFAULTS: dict[str, object] = {
    "hostnames": ["127.0.0.1"],
    "n_ctx": 0,
    "n_parallel": 1,
    "cors_origins": "localhost",
    "endpoint_slots": False,
    "offline": True,
    "ui": False,
    "verbosity": 2,
    "warmup": False,
}


class _ParamError(ValueError):
    """An option that CommonParams doesn't have, or a value that it doesn't accept."""


def main(arguments: Sequence[str]) -> int:
    """Serve a model until a signal ends the process.

    Args:
        arguments: The command line.

    Returns:
        The exit code 1 if the server did not start; otherwise it never returns.
    """
    try:
        fields = {_FIELDS.get(name, name): value for name, value in _pairs(arguments)}
    except _ParamError as error:
        return _report_failure(str(error))
    model, template = fields["model.path"], fields.get("chat_template")
    if wrong := _model_fault(model):
        return _report_failure(wrong)
    try:
        xllamacpp: Any = import_module("xllamacpp")  # an extra that is slow to import and has no types
    except ImportError:
        return _report_failure(str(missing_extra("xllamacpp", "local")))
    params = xllamacpp.CommonParams()
    try:
        if template is not None:
            fields["chat_template"] = read_regular(template, MAX_BYTES).decode()
        for name, value in (_DEFAULTS | fields).items():
            _set(params, name, value)
        params.n_ctx *= params.n_parallel  # llama.cpp divides it among the requests
    except _ParamError as error:
        return _report_failure(str(error))
    except OSError as error:
        return _report_failure(f"cannot read the chat template {template}: {error.strerror}")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        # The exception has no reason. llama.cpp logs it from a thread, which must not be cut off.
        time.sleep(_LOGGING)
        return _report_failure(f"llama.cpp does not serve {model}; see its own log lines for the reason")
    print(f"{model} is served at {server.listening_address}", flush=True)  # noqa: T201 - a program
    while True:  # until a signal
        time.sleep(_DAY)


def _model_fault(name: str) -> str:
    """Return the fault of a model's file that its first bytes show; empty if there is none."""
    try:
        with os.fdopen(open_regular(name), "rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        return f"cannot read the model {name}: {error.strerror}"
    return "" if magic == _MAGIC else f"{name} is not a GGUF file: it begins with {magic!r}, not with {_MAGIC!r}"


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of ``--name value``, ``--name=value`` and ``--name``."""
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if not option.startswith("--") or option == "--":
            raise _ParamError(f"{option!r} is not an option; write --name value")
        name, equals, value = option[2:].partition("=")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not equals:
            value = "true"
        yield name.replace("-", "_"), value


def _set(params: Any, name: str, value: object) -> None:  # noqa: ANN401 - xllamacpp has no types
    """Set a field, or that of an inner object if the name has dots; convert text to the field's type."""
    *outer, last = name.split(".")
    for part in outer:
        params = getattr(params, part, None)
    if last.startswith("no_") and not hasattr(params, last):
        last, value = last.removeprefix("no_"), "false" if value == "true" else value
    if last.startswith("_") or not hasattr(params, last):
        near = nearest(last, [field for field in dir(params) if not field.startswith("_")])
        raise _ParamError(f"llama.cpp has no option {name}{f' (did you mean {near}?)' if near else ''}")
    try:
        setattr(params, last, _convert(value, getattr(params, last)) if isinstance(value, str) else value)
    except (AssertionError, AttributeError, OverflowError, TypeError, ValueError) as error:
        raise _ParamError(f"the option {name} does not take {value!r}: {error}") from error


def _convert(text: str, now: object) -> object:
    """Convert a text to the type of a field's present value."""
    if isinstance(now, str):
        return text
    members: Mapping[str, object] | None = getattr(type(now), "__members__", None)
    if members is not None:
        common = len(commonprefix([*members]))  # noqa: RUF071 - by characters: LLAMA_SPLIT_MODE_LAYER is layer
        by_name = {name[common:].lower(): member for name, member in members.items()}
        return by_name[text.lower()] if text.lower() in by_name else _refuse(f"it is one of {', '.join(by_name)}")
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError:
        return _refuse(f"it is as JSON writes it, and now {json.dumps(now, default=str)}")
    if isinstance(now, bool) and not isinstance(value, bool):
        return _refuse("it is true or false")
    return set(value) if isinstance(now, set) and is_list(value) else value


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)


def _report_failure(why: str) -> int:
    print(f"llamacpp_server: {why}", file=sys.stderr)  # noqa: T201 - a program
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
