"""Test cases for prompts, written in YAML, JSON Lines or CSV, or in Python with :func:`assert_prompt`.

``greeting.test.yaml`` contains the test cases for ``greeting.prompty`` in the same directory. ``greeting.test.jsonl``
and ``greeting.test.csv`` contain only inputs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypedDict, Unpack, cast

from lazyprompt.batch.rows import Choice, Row, RowFile, parse_row, row_file
from lazyprompt.errors import BatchError, PromptFileError, did_you_mean
from lazyprompt.files.library.names import YAML_SUFFIXES, visible_files
from lazyprompt.files.references import References, text_in_place
from lazyprompt.files.yaml_nodes import Node, SourceText, YamlReader, plain, text_of_file
from lazyprompt.prompters.rows import RowFault
from lazyprompt.testing.checks import ANSWER, PROMPT, Check, make_check, prompt_failures, read_checks
from lazyprompt.testing.rendered import LoadedPrompt, RenderedCase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.target_choice import FormatLike
    from lazyprompt.testing.rendered import Arguments

    PromptLike: TypeAlias = "RenderedCase | Prompty | Prompter | str | os.PathLike[str]"


YAML_ENDS: Final = (".test.yaml", ".test.yml")
ROW_ENDS: Final = (".test.jsonl", ".test.csv")
_ENDS: Final = (*YAML_ENDS, *ROW_ENDS)
_PROMPT_ENDS: Final = (".prompty", ".yaml", ".yml")
_FIELDS: Final = ("file", "params", "cases", "rows", "prompt", "answer")
_CASES = re.compile(r"^[\"']?(?:cases|rows)[\"']?\s*:", re.MULTILINE)
_FILE = re.compile(r"^[\"']?file[\"']?\s*:", re.MULTILINE)
# Fields of cases, and the names of row files, which other tools' files don't contain.
_FIELDS_OF_CASES = re.compile(
    r"(?<![\w.-])[\"']?(?:inputs|prompt|answer)[\"']?\s*:|^rows\s*:.*\.(?:jsonl|csv|parquet)\b", re.MULTILINE
)
_NONE: Final = (None, None, None)
_CASE_FIELDS: Final = ("name", "inputs", "history", "tools", "prompt", "answer")


class Case(NamedTuple):
    """A test case with a prompt's inputs and the checks to run.

    Attributes:
        file: The path of the test file.
        line: The line number in the file, counted from 1.
        name: The test case's name; by default, its number.
        arguments: The inputs, the history and the tools; all three are None if the test case is a row of a table file.
        prompt: The checks to run on the prompt.
        answer: The checks to run on the model's response.
        row: The row of the table file, including its history and tools columns; None for a test case in YAML.
        fault: The error message if the row can't be read, otherwise ``""``.
    """

    file: Path
    line: int
    name: str
    arguments: Arguments = _NONE
    prompt: tuple[Check, ...] = ()
    answer: tuple[Check, ...] = ()
    row: Row | None = None
    fault: str = ""

    @property
    def inputs(self) -> object:
        """The inputs; for a table row, all of its columns."""
        return self.arguments[0] if self.row is None else self.row


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A test file with its test cases.

    Args:
        path: The file's path.
        prompt: The prompt file.
        params: The values for ``${params:name}`` references.
        listed: The test cases that the file itself contains.
        rows: A file whose rows are additional test cases; links in its path are already resolved.
        prompt_checks: The checks to run on the prompt for each row.
        answer_checks: The checks to run on the model's response for each row.
    """

    path: Path
    prompt: Path
    params: Mapping[str, object]
    listed: tuple[Case, ...] = ()
    rows: RowFile | None = None
    prompt_checks: tuple[Check, ...] = ()
    answer_checks: tuple[Check, ...] = ()

    @classmethod
    def read(cls, path: Path, roots: Sequence[str] = ()) -> CaseFile:
        """Read a test file.

        Args:
            path: The file's path.
            roots: Additional directories that contain files to which the test file may refer.

        Raises:
            PromptFileError: The file is invalid, has no prompt, or refers to a file outside the allowed directories.
        """
        places = References(path.parent, tuple(map(Path, roots)))
        if path.name.endswith(ROW_ENDS):
            prompt = _beside(path, ROW_ENDS)
            try:
                return cls(path, prompt, {}, rows=_rows(path, path.name, places))
            except ValueError as error:
                raise PromptFileError(f"{path}:1:1: {error}") from error
        source = SourceText(text_in_place(path, roots), str(path))
        fields = source.mapping_of(YamlReader(source).read(), "a test file")
        _check_names(source, fields, _FIELDS, "a test file")
        given = source.text_of(fields.get("file"), "file")
        prompt = _beside(path, YAML_ENDS) if given is None else _prompt(source, fields["file"], path, given, places)
        params = _params(source, fields.get("params"))
        common = {kind: read_checks(source, fields.get(kind), kind) for kind in (PROMPT, ANSWER)}
        rows = source.text_of(fields.get("rows"), "rows")
        items = source.list_of(fields["cases"], "cases") if "cases" in fields else []
        cases = [_case(source, path, number, item, common) for number, item in enumerate(items, 1)]
        seen: dict[str, int] = {}
        for case, item in zip(cases, items, strict=True):
            if case.name in seen:
                raise source.fault_at(
                    item.at, f"duplicate case name {case.name!r}; the first is on line {seen[case.name]}"
                )
            seen[case.name] = case.line
        if not cases and rows is None:
            raise source.fault_at(0, "the file contains no cases; add cases: [{inputs: {...}}], or rows: FILE.jsonl")
        try:
            table = None if rows is None else _rows(path, rows, places)
        except ValueError as error:
            raise source.fault_at(fields["rows"].at, str(error)) from error
        return cls(path, prompt, params, tuple(cases), table, common[PROMPT], common[ANSWER])

    def check_no_code(self) -> None:
        """Check that the file contains no ``python`` checks, which run code.

        Raises:
            BatchError: The file contains a ``python`` check.
        """
        places = [(self.path, 1, self.answer_checks), *((each.file, each.line, each.answer) for each in self.listed)]
        for file, line, checks in places:
            if named := next((each.value for each in checks if each.kind == "python"), None):
                raise BatchError(
                    f"{file}:{line}:1: the check 'python: {named}' runs code; pass --allow-code if you trust this file"
                )

    def cases(self) -> Iterator[Case]:
        """Yield the test cases, reading rows lazily.

        Raises:
            BatchError: The row file can't be read.
        """
        yield from self.listed
        if self.rows is None:
            return
        checks = self.prompt_checks, self.answer_checks
        for unread in Choice().raw_rows(self.rows):
            row, name = parse_row(unread), f"row {unread.number}"
            line = unread.lines[0] if unread.lines else unread.number
            if isinstance(row, RowFault):
                yield Case(self.rows.path, line, name, fault=row.reason)
            else:
                yield Case(self.rows.path, line, name, _NONE, *checks, row)


def _params(source: SourceText, node: Node | None) -> dict[str, object]:
    if node is None or node.value is None:
        return {}
    return {name: plain(value) for name, value in source.mapping_of(node, "params").items()}


def _prompt(source: SourceText, node: Node, path: Path, given: str, places: References) -> Path:
    """Return the path of the prompt file that a test file specifies."""
    if not given.lower().endswith(_PROMPT_ENDS):
        ends = ", ".join(_PROMPT_ENDS)
        raise source.fault_at(node.at, f"{given!r} is not a prompt file; its name must end in {ends}")
    try:
        found = places.path_of(given)
    except ValueError as error:
        raise source.fault_at(node.at, str(error)) from error
    if not found.name.lower().endswith(_PROMPT_ENDS):
        raise source.fault_at(node.at, f"{given!r} is a link to {found.name!r}, which is not a prompt file")
    if not found.is_file():
        raise source.fault_at(node.at, f"prompt file {given!r} doesn't exist")
    # If the path contains a symlinked directory, references in the file are relative to the real directory.
    named = path.parent / given
    return named if os.path.realpath(named.parent) == str(found.parent) else found


def _rows(path: Path, given: str, places: References) -> RowFile:
    """Return the row file that a test file specifies.

    Raises:
        ValueError: The file is outside the allowed directories.
        BatchError: The file's suffix is not supported.
    """
    return row_file(path.parent / given, resolved=places.path_of(given))


def _case(source: SourceText, path: Path, number: int, node: Node, common: Mapping[str, tuple[Check, ...]]) -> Case:
    fields = source.mapping_of(node, f"cases[{number - 1}]")
    _check_names(source, fields, _CASE_FIELDS, "a case")
    checks = [(*read_checks(source, fields.get(kind), kind), *common[kind]) for kind in (PROMPT, ANSWER)]
    given = fields.get("name")
    name = str(number) if given is None else str(plain(given))
    arguments = cast("Arguments", tuple(plain(fields.get(field)) for field in ("inputs", "history", "tools")))
    return Case(path, source.place(node.at)[0], name, arguments, checks[0], checks[1])


def _check_names(source: SourceText, fields: Mapping[str, Node], known: tuple[str, ...], what: str) -> None:
    for name, node in fields.items():
        if name not in known:
            near = did_you_mean(name, known)
            raise source.fault_at(
                node.key_at, f"unknown field {name!r} in {what}{near}; expected one of {', '.join(known)}"
            )


def _beside(path: Path, ends: tuple[str, ...]) -> Path:
    """Return the prompt file in a test file's directory that has the same base name."""
    found = _prompts_beside(path, ends)
    if len(found) == 1:
        return found[0]
    if found:
        what = f"{' and '.join(each.name for each in found)} both match; set the prompt file with file:"
    else:
        names = [place.name for place in _places_beside(path, ends)]
        what = f"the prompt file {names[0]} doesn't exist (nor {' or '.join(names[1:])}); create it, or set file:"
    raise PromptFileError(f"{path}:1:1: {what}")


def _places_beside(path: Path, ends: tuple[str, ...]) -> list[Path]:
    stem = next(path.name.removesuffix(end) for end in ends if path.name.endswith(end))
    return [path.with_name(stem + end) for end in _PROMPT_ENDS]


def _prompts_beside(path: Path, ends: tuple[str, ...]) -> list[Path]:
    return [place for place in _places_beside(path, ends) if place.is_file()]


def is_case_file(path: Path) -> bool:
    """Return True if a file contains prompt test cases; other tools use the same file names."""
    beside = _prompts_beside(path, YAML_ENDS)
    if any(each.suffix not in YAML_SUFFIXES for each in beside):
        return True
    try:
        text = text_in_place(path)
    except PromptFileError:
        return False
    return _CASES.search(text) is not None and bool(beside or _FILE.search(text) or _FIELDS_OF_CASES.search(text))


def case_files(place: Path) -> Iterator[Path]:
    """Find the test files at a path.

    Args:
        place: A test file, a prompt file with test files in its directory, or a directory to search. Hidden files in
            the directory are skipped.
    """
    if place.is_dir():
        for path in visible_files(place):
            if path.name.endswith(_ENDS) and (not path.name.endswith(YAML_ENDS) or is_case_file(path)):
                yield path
    elif place.name.endswith(_ENDS):
        yield place
    else:
        beside = (place.with_name(place.stem + end) for end in (*YAML_ENDS, *ROW_ENDS))
        yield from (path for path in beside if path.is_file())


class PromptChecks(TypedDict, total=False):
    """The checks that :func:`assert_prompt` accepts, named as in test files."""

    contains: str | Sequence[str]
    not_contains: str | Sequence[str]
    regex: str | Sequence[str]
    not_regex: str | Sequence[str]
    roles: Sequence[str]
    max_tokens: int
    safe: bool
    valid: FormatLike | Sequence[FormatLike]


def render_cases(
    prompt: str | os.PathLike[str],
    *,
    params: Mapping[str, object] | None = None,
    allowed_roots: Sequence[str] = (),
) -> list[RenderedCase]:
    """Render the test cases for a prompt file, for use with ``pytest.mark.parametrize(..., ids=str)``.

    Args:
        prompt: A prompt file with test files in its directory, or a test file.
        params: The values for ``${params:name}`` references, which override the values in test files.
        allowed_roots: Additional directories that contain files to which the prompt file may refer.

    Raises:
        PromptFileError: A file is invalid, or no test cases are found.
        LazyPromptError: A test case's inputs don't match the prompt.
    """
    path = Path(prompt)
    found: list[RenderedCase] = []
    for file in (CaseFile.read(each, allowed_roots) for each in case_files(path)):
        loaded = LoadedPrompt.load(file.prompt, {**file.params, **(params or {})}, allowed_roots)
        for case in file.cases():
            if case.fault:
                raise PromptFileError(f"{case.file}:{case.line}:1: {case.fault}")
            given = case.arguments if case.row is None else loaded.arguments(case.row)
            found.append(loaded.render(*given, case.name))
            loaded.check_names(given[0])
    if not found:
        raise PromptFileError(f"{path}:1:1: no test cases found; create {path.with_name(path.stem)}.test.yaml")
    return found


def assert_prompt(
    prompt: PromptLike,
    inputs: object = None,
    history: HistoryLike | None = None,
    tools: ToolsLike = None,
    **checks: Unpack[PromptChecks],
) -> RenderedCase:
    """Fill a prompt, and run the given checks on it as in a test file.

    Args:
        prompt: A test case from :func:`render_cases`, or a prompter or prompt file to fill with the arguments.
        inputs: The inputs.
        history: The history.
        tools: The tools for this call.
        checks: The checks as keyword arguments, named as in test files.

    Returns:
        The rendered prompt.

    Raises:
        AssertionError: One or more checks fail; the message lists all failures.
        ValueError: A check's value is invalid.
        LazyPromptError: The inputs don't match the prompt.
    """
    if isinstance(prompt, RenderedCase):
        case = prompt
    elif isinstance(prompt, str | os.PathLike):
        case = _rendered(LoadedPrompt.load(Path(prompt), text=text_of_file(os.fspath(prompt))), inputs, history, tools)
    else:
        case = _rendered(LoadedPrompt.of(prompt), inputs, history, tools)
    failures = prompt_failures(case, [make_check(PROMPT, kind, cast("Json", value)) for kind, value in checks.items()])
    if failures:
        raise AssertionError("\n".join(f"{each.check}: {each.message}" for each in failures))
    return case


def _rendered(loaded: LoadedPrompt, inputs: object, history: HistoryLike | None, tools: ToolsLike) -> RenderedCase:
    case = loaded.render(inputs, history, tools)
    loaded.check_names(inputs)
    return case
