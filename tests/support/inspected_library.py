"""The example library looked at: in each family and for each provider the same bytes as generate_prompt gives.

``PYTHONPATH=tests python tests/support/inspected_library.py`` looks at all; the tests take a share of them.
"""

import sys
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from lazyprompt import Markers, Prompter
from lazyprompt.errors import LazyPromptError
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.inspect.look import CallArguments, look
from support.paths import LIBRARY, library_inputs

INPUTS: dict[str, Any] = library_inputs()
PARAMS = {"judge": "gpt-5.4", "deployment": "qwen-plus"}
# All forms that a file can be looked at in, with the model of each.
FORMS = [("flat", None), *(("flat", family) for family in Markers.families()), *((name, None) for name in PROVIDERS)]


class Case(NamedTuple):
    """A file in a form."""

    path: str
    form: str
    model: str | None


def cases() -> list[Case]:
    """All of them."""
    return [Case(path, form, model) for path in INPUTS for form, model in FORMS]


def share(parts: int) -> list[Case]:
    """One of so many of them, the same each time."""
    return [case for case in cases() if int.from_bytes(sha256(str(tuple(case)).encode()).digest()) % parts == 0]


@cache
def _made(path: str) -> tuple[Prompty | Prompter, Prompter]:
    """What makes the prompt of a file, and the prompter that is looked at."""
    if path.endswith(".yaml"):
        prompter = PromptFile.load(LIBRARY / path).prompter
        return prompter, prompter
    prompty = Prompty.load(LIBRARY / path, params=PARAMS)
    return prompty, prompty.prompter


def faults(case: Case) -> Iterator[str]:
    """The faults of a case."""
    maker, prompter = _made(case.path)
    given: Any = INPUTS[case.path]
    try:
        expected: object = maker.generate_prompt(given, format=case.form, model=case.model)
    except LazyPromptError as error:
        expected = str(error)
    try:
        seen = look(prompter, CallArguments(given), title=case.path, form=case.form, model=case.model)
    except LazyPromptError as error:
        if str(error) != expected:
            yield f"{case}: look raises {error}"
        return
    if seen.sent != expected:
        yield f"{case}: what is shown is not what generate_prompt gives"
    if case.form == "flat" and "".join(text for text, _, _ in seen.segments) != expected:
        yield f"{case}: the segments do not make up the text"
    if sum(slot.tokens for slot in seen.slots) != seen.total:
        yield f"{case}: the slots' tokens do not add up"
    if seen.report != getattr(expected, "report", ()):
        yield f"{case}: another report"


def main() -> int:
    """Look at all of them."""
    found = [fault for case in cases() for fault in faults(case)]
    sys.stdout.write("".join(f"{fault}\n" for fault in found) + f"{len(cases())} looks, {len(found)} faults\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
