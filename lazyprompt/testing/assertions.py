"""Prompts tested in code: the cases of a prompt file, and an assertion with the checks of cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack, cast

from lazyprompt.errors import PromptFileError
from lazyprompt.testing.cases import CaseFile, case_files
from lazyprompt.testing.checks import PROMPT, make_check, prompt_failures
from lazyprompt.testing.rendered import LoadedPrompt, RenderedCase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter

    PromptLike: TypeAlias = "RenderedCase | Prompty | Prompter | str | os.PathLike[str]"


class PromptChecks(TypedDict, total=False):
    """The checks of :func:`assert_prompt`, as in files of cases."""

    contains: str | Sequence[str]
    not_contains: str | Sequence[str]
    regex: str | Sequence[str]
    not_regex: str | Sequence[str]
    roles: Sequence[str]
    max_tokens: int
    safe: bool
    valid: str | Sequence[str]


def render_cases(
    prompt: str | os.PathLike[str],
    *,
    params: Mapping[str, object] | None = None,
    allowed_roots: Sequence[str] = (),
) -> list[RenderedCase]:
    """Return the cases of a prompt file, rendered, for ``pytest.mark.parametrize(..., ids=str)``.

    Args:
        prompt: A prompt file, whose cases stand beside it; or a file of cases.
        params: The values of ``${params:name}``, beside those of the files of cases.
        allowed_roots: Directories that the prompt file may refer to, beside its own.

    Raises:
        PromptFileError: A file is wrong, or there is no case.
        LazyPromptError: The inputs of a case do not fit.
    """
    path = Path(prompt)
    found: list[RenderedCase] = []
    for file in map(CaseFile.read, case_files(path)):
        loaded = LoadedPrompt.load(file.prompt, {**file.params, **(params or {})}, allowed_roots)
        for case in file.cases():
            if case.fault:
                raise PromptFileError(f"{case.file}:{case.line}:1: {case.fault}")
            given = case.arguments if case.row is None else loaded.arguments(case.row)
            found.append(loaded.rendered(*given, case.name))
    if not found:
        raise PromptFileError(f"{path}:1:1: there is no case; write {path.with_name(path.stem)}.test.yaml")
    return found


def assert_prompt(
    prompt: PromptLike,
    inputs: object = None,
    history: HistoryLike | None = None,
    tools: ToolsLike = None,
    **checks: Unpack[PromptChecks],
) -> RenderedCase:
    """Check a prompt as a file of cases does.

    Args:
        prompt: A case of :func:`render_cases`; or a prompt, a prompter or a prompt file, with what it is called with.
        inputs: The inputs.
        history: The history.
        tools: The tools of the call.
        checks: The checks, by their names in files of cases.

    Returns:
        The rendered prompt.

    Raises:
        AssertionError: A check fails; all that fail are in the message.
        ValueError: The value of a check is wrong.
        LazyPromptError: The inputs do not fit.
    """
    if isinstance(prompt, RenderedCase):
        case = prompt
    elif isinstance(prompt, str | os.PathLike):
        case = LoadedPrompt.load(Path(prompt)).rendered(inputs, history, tools)
    else:
        case = LoadedPrompt.of(prompt).rendered(inputs, history, tools)
    failures = prompt_failures(case, [make_check(PROMPT, kind, cast("Json", value)) for kind, value in checks.items()])
    if failures:
        raise AssertionError("\n".join(f"{each.check}: {each.message}" for each in failures))
    return case
