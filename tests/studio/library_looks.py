"""Looks of the example library: the text in the studio's response, and the one from ``generate_prompt``."""

import json
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, cast

from lazyprompt.errors import LazyPromptError
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.markers import Markers
from lazyprompt.studio.looking import Looking
from lazyprompt.studio.reading import LookRequest, parse_request
from lazyprompt.studio.workspace import Workspace
from studio.helpers import PARAMS
from support.paths import LIBRARY, library_inputs

INPUTS: dict[str, Any] = library_inputs()


class Case(NamedTuple):
    """A file, in one form for one model."""

    path: str
    form: str
    model: str | None

    def is_of_share(self, one_in: int) -> bool:
        """Whether the tests use this case: decided by a hash, so the same in each run."""
        return int.from_bytes(sha256(repr(self).encode()).digest()[:4]) % one_in == 0


def cases() -> Iterator[Case]:
    """Each file as flat text of no family and of each, in the OpenAI form of each, and for each provider."""
    for path in sorted(INPUTS):
        yield Case(path, "flat", None)
        for family in Markers.families():
            yield Case(path, "flat", family)
            yield Case(path, "openai", family)
        for provider in PROVIDERS:
            yield Case(path, provider, None)


@lru_cache(maxsize=1)
def make_looking() -> Looking:
    return Looking(Workspace.of(LIBRARY), PARAMS)


@lru_cache(maxsize=1)
def text_of(path: str) -> str:
    text = make_looking().file(path)["text"]
    assert isinstance(text, str)
    return text


@lru_cache(maxsize=1)
def prompter_of(path: str) -> Prompter:
    """The prompter of a file, as the command line reads it."""
    name = LIBRARY / path
    made = PromptFile.load(name) if name.suffix == ".yaml" else Prompty.load(name, PARAMS, [LIBRARY])
    return made.prompter


def inputs_of(path: str) -> dict[str, Any]:
    """The inputs by their names, as in the page; some prompts have only one, without a name."""
    given = INPUTS[path]
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {only_input(path): given}


def only_input(path: str) -> str:
    """The name of the only input of a prompt."""
    return (*prompter_of(path).slots, "input")[0]


def shown_text(case: Case) -> object:
    """The text in the studio's response, after a round trip through JSON."""
    given = {"path": case.path, "text": text_of(case.path), "inputs": inputs_of(case.path)}
    request = parse_request(LookRequest, json.dumps({**given, "form": case.form, "model": case.model}).encode())
    answer = json.loads(json.dumps(make_looking().look(request)))
    if "error" in answer:
        return {key: answer["error"][key] for key in ("message", "line", "column")}
    return answer["look"]["text"]


def expected_text(case: Case) -> object:
    """The text or payload from generate_prompt."""
    try:
        made = prompter_of(case.path).generate_prompt(INPUTS[case.path], format=case.form, model=case.model)
    except LazyPromptError as error:
        return {"message": str(error), "line": None, "column": None}
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, indent=2)
