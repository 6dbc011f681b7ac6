"""A command-line program that runs llama.cpp's server from the xllamacpp package (the ``local`` extra).

    python llamacpp_server.py --model MODEL.gguf --port N [--NAME VALUE ...]

:class:`lazyprompt.modules.process.EngineProcess` starts this program. The server listens on 127.0.0.1. The program
defines these options:

``--context``
    The maximum number of tokens in the prompt and response of one request. The default for ``--context`` is the model's
    context size, or less if memory is insufficient.

``--parallel``
    The maximum number of concurrent requests (default 1).

``--threads``
    The number of threads for generation.

``--seed``
    The seed for sampling.

``--chat-template``
    The file that contains the chat template.

Any other option sets a field of llama.cpp's ``CommonParams``. Option names may contain hyphens or underscores. Examples
are ``--n-batch 256``, ``--special`` (true), ``--no-cont-batching`` (false), ``--sampling.temp 0`` and
``--flash-attn-type enabled``. An invalid option or model is reported on one line, and the exit code is 1.

Unlike llama.cpp's own server, this program disables the web UI, model downloads and warm-up by default, and allows
cross-origin requests only from localhost. The list of current requests is disabled because it would reveal prompts. The
log contains only warnings and errors.
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
_LOGGING = 0.5  # seconds to wait for the last log lines from llama.cpp
# Maps options to fields of llama.cpp's CommonParams. All other options have the same names as their fields.
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
    """Raised when an option is not a field of CommonParams or has an invalid value."""


def main(arguments: Sequence[str]) -> int:
    """Serve a model until a signal ends the process.

    Args:
        arguments: The command-line arguments.

    Returns:
        The exit code, which is always 1, because the function returns only if the server did not start.
    """
    try:
        fields = {_FIELDS.get(name, name): value for name, value in _pairs(arguments)}
    except _ParamError as error:
        return _report_failure(str(error))
    model, template = fields["model.path"], fields.get("chat_template")
    if wrong := _model_fault(model):
        return _report_failure(wrong)
    try:
        xllamacpp: Any = import_module("xllamacpp")  # optional, slow to import and untyped
    except ImportError:
        return _report_failure(str(missing_extra("xllamacpp", "local")))
    params = xllamacpp.CommonParams()
    try:
        if template is not None:
            fields["chat_template"] = read_regular(template, MAX_BYTES).decode()
        for name, value in (_DEFAULTS | fields).items():
            _set(params, name, value)
        params.n_ctx *= params.n_parallel  # llama.cpp divides the context among parallel requests
    except _ParamError as error:
        return _report_failure(str(error))
    except OSError as error:
        return _report_failure(f"cannot read the chat template {template}: {error.strerror}")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # exit without a traceback on Ctrl-C
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        # The exception contains no reason. Wait until a llama.cpp thread has logged the reason.
        time.sleep(_LOGGING)
        return _report_failure(f"llama.cpp cannot serve {model}; see the llama.cpp log for the reason")
    print(f"{model} is served at {server.listening_address}", flush=True)  # noqa: T201 - a program
    while True:
        time.sleep(_DAY)


def _model_fault(name: str) -> str:
    """Return the reason why a file is not a readable GGUF model, or an empty string for a readable model."""
    try:
        with os.fdopen(open_regular(name), "rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        return f"cannot read the model {name}: {error.strerror}"
    return "" if magic == _MAGIC else f"{name} is not a GGUF file: it begins with {magic!r} instead of {_MAGIC!r}"


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Parse ``--name value``, ``--name=value`` and ``--name`` into names and values."""
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if not option.startswith("--") or option == "--":
            raise _ParamError(f"{option!r} is not an option; expected --name value")
        name, equals, value = option[2:].partition("=")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not equals:
            value = "true"
        yield name.replace("-", "_"), value


def _set(params: Any, name: str, value: object) -> None:  # noqa: ANN401 - xllamacpp has no types
    """Set a field, or a field of a nested object if the name contains dots; convert text to the field's type."""
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
        raise _ParamError(f"the option {name} does not accept {value!r}: {error}") from error


def _convert(text: str, now: object) -> object:
    """Convert text to the type of a field's current value."""
    if isinstance(now, str):
        return text
    members: Mapping[str, object] | None = getattr(type(now), "__members__", None)
    if members is not None:
        common = len(commonprefix([*members]))  # noqa: RUF071 - LLAMA_SPLIT_MODE_LAYER becomes layer
        by_name = {name[common:].lower(): member for name, member in members.items()}
        return by_name[text.lower()] if text.lower() in by_name else _refuse(f"expected one of {', '.join(by_name)}")
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError:
        return _refuse(f"expected JSON, such as the current value {json.dumps(now, default=str)}")
    if isinstance(now, bool) and not isinstance(value, bool):
        return _refuse("expected true or false")
    return set(value) if isinstance(now, set) and is_list(value) else value


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)


def _report_failure(why: str) -> int:
    print(f"llamacpp_server: {why}", file=sys.stderr)  # noqa: T201 - a program
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
