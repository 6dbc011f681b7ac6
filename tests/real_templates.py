"""Models' own chat templates, to compare with.

They carry their models' licences, so they are no part of this repository: the first test that wants one downloads the
wheel of trl, which holds many of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from jinja2 import Template, nodes
    from jinja2.parser import Parser

TRL_WHEEL = "trl-1.16.0-py3-none-any.whl"


def real_template(name: str) -> Template:
    """A model's own chat template, compiled as transformers does it.

    There is no clock (``strftime_now``) in it; hand one to ``render`` where a template asks for the date.

    Args:
        name: The name of a file in trl's folder ``chat_templates``, without its ending.

    Returns:
        The template.

    Raises:
        RuntimeError: The wheel cannot be downloaded.
        KeyError: There is no such template.
    """
    with zipfile.ZipFile(wheel(TRL_WHEEL, "with models' own chat templates")) as archive:
        source = archive.read(f"trl/chat_templates/{name}.jinja").decode()
    return _environment().from_string(source)


def wheel(name: str, compared: str) -> Path:
    """A wheel on disk, downloaded once.

    Any number of processes may come first at once: each downloads beside, one takes its place.

    Args:
        name: The name of the wheel's file.
        compared: What the tests compare with, as the error says it.

    Returns:
        The wheel, in the folder where the tests keep what they download.

    Raises:
        RuntimeError: It cannot be downloaded.
    """
    cache = Path(os.environ.get("LAZYPROMPT_TEST_CACHE") or Path.home() / ".cache" / "lazyprompt-tests")
    path = cache / name
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    requirement = "==".join(name.split("-")[:2])
    with TemporaryDirectory(dir=cache) as beside:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "--dest", beside, requirement]
        run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - all of it is fixed
        if run.returncode:
            raise RuntimeError(
                f"these tests compare {compared} out of {requirement}, which could not be downloaded "
                f"({' '.join(command)}):\n{run.stderr.strip()}"
            )
        (Path(beside) / name).replace(path)
    return path


class _Generation(Extension):
    """The block with which templates mark what the assistant said; here it shows what is in it."""

    tags = {"generation"}  # noqa: RUF012 - the form jinja2 gives

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    return environment


def _to_json(value: Any, *, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
