"""The linter for prompt files that ``lazyprompt check`` runs.

Each finding has a stable code and a position. To turn a rule off, write ``{# lazyprompt: ignore=LP040 #}`` in the
template or ``# lazyprompt: ignore=LP040`` in the front matter. A comment on a line of its own applies to the whole
file; any other comment applies only to its line. The rules for load errors and secrets can't be turned off.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import quote

from rich.cells import cell_len

from lazyprompt._base.characters import visible
from lazyprompt._base.frozen import read_only
from lazyprompt._version import __version__
from lazyprompt.errors import PromptFileError, did_you_mean
from lazyprompt.files.check import rules_body as body
from lazyprompt.files.check import rules_fields as fields
from lazyprompt.files.check.subject import Hit, Subject, hit_of
from lazyprompt.files.library.names import SUFFIXES, YAML_SUFFIXES, visible_files
from lazyprompt.files.prompt_file import TYPES
from lazyprompt.files.references import text_in_place
from lazyprompt.files.yaml_nodes import text_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject


Severity: TypeAlias = Literal["error", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""The severities of findings, most severe first."""

_MAX_PER_RULE = 100
_IGNORED = re.compile(
    r"(?:\{#[-+]?|\{\{!|#)\s*lazyprompt:\s*ignore\s*=\s*(?P<codes>[A-Za-z0-9_]+(?:\s*,\s*[A-Za-z0-9_]+)*)"
    r"\s*(?:[-+]?#\}|\}\}|$)",
    re.MULTILINE,
)
_CODE = re.compile(r"[A-Za-z0-9_]+")


class Rule(NamedTuple):
    """A lint rule for prompt files.

    Attributes:
        code: The rule's stable code, such as ``LP040``.
        name: The rule's name in reports.
        severity: The severity of the rule's findings.
        find: The function that finds violations; its docstring is the rule's description.
        fixed: True if comments can't turn the rule off.
        explains: True if the rule's findings replace the load error (LP001) on the same line.
    """

    code: str
    name: str
    severity: Severity
    find: Callable[[Subject], Iterator[Hit]]
    fixed: bool = False
    explains: bool = False


def _ignored_codes(subject: Subject) -> Iterator[tuple[str, int, int]]:
    """Yield each rule code in ``ignore`` comments, the code's index, and the affected line (0 for the whole file)."""
    for comment in _IGNORED.finditer(subject.text):
        line = subject.place(comment.start()).line
        alone = subject.excerpt(line).strip() == comment[0].strip()
        for code in _CODE.finditer(subject.text, *comment.span("codes")):
            yield code[0].upper(), code.start(), 0 if alone else line


def _unknown_codes(subject: Subject) -> Iterator[Hit]:
    """Report ``ignore`` comments for rules that are unknown or can't be turned off."""
    for code, at, _ in _ignored_codes(subject):
        rule = RULES.get(code)
        if rule is None or rule.fixed:
            why = f"is not a rule{did_you_mean(code, RULES)}" if rule is None else "can't be turned off by a comment"
            yield Hit(subject.place(at), f"{code} {why}", "remove it")


RULES: Final[dict[str, Rule]] = {
    each.code: each
    for each in (
        Rule("LP001", "does-not-load", "error", fields.faults, fixed=True),
        Rule("LP002", "byte-order-mark", "info", fields.byte_order_mark),
        Rule("LP003", "mixed-line-ends", "warning", fields.mixed_line_ends),
        Rule("LP004", "tab-in-front-matter", "warning", fields.tabs),
        Rule("LP005", "spaces-in-role-line", "info", body.spaces_in_role_lines),
        Rule("LP010", "unknown-field", "warning", fields.unknown_fields),
        Rule("LP012", "tool-without-description", "warning", fields.tools_without_description),
        Rule("LP013", "other-yaml", "info", fields.other_yaml),
        Rule("LP014", "other-field", "info", fields.other_fields),
        Rule("LP015", "wrong-option", "error", fields.wrong_options),
        Rule("LP020", "unused-input", "warning", fields.unused_inputs),
        Rule("LP021", "unknown-slot", "error", fields.unknown_slots),
        Rule("LP022", "required-with-default", "warning", fields.required_with_default),
        Rule("LP023", "wrong-default", "error", fields.wrong_defaults, fixed=True),
        Rule("LP024", "wrong-example", "warning", fields.wrong_examples),
        Rule("LP025", "wrong-binding", "error", fields.wrong_bindings),
        Rule("LP026", "kind-as-default", "warning", fields.kinds_as_defaults),
        Rule("LP027", "undeclared-inputs", "info", fields.undeclared_inputs),
        Rule("LP030", "role-typo", "warning", body.role_typos),
        Rule("LP031", "role-in-fence", "warning", body.fenced_roles),
        Rule("LP032", "empty-section", "warning", body.empty_sections),
        Rule("LP033", "text-before-roles", "warning", body.text_before_roles),
        Rule("LP034", "late-system", "warning", body.late_system),
        Rule("LP035", "never-reached", "warning", body.never_reached),
        Rule("LP036", "role-with-text", "warning", body.roles_with_text),
        Rule("LP040", "control-marker", "warning", body.control_markers),
        Rule("LP050", "hidden-attribute", "error", body.hidden_attributes),
        Rule("LP052", "unknown-filter", "error", body.unknown_filters, fixed=True, explains=True),
        Rule("LP053", "safe-filter", "warning", body.safe_filters),
        Rule("LP054", "unbounded", "warning", body.unbounded),
        Rule("LP060", "secret", "error", fields.secrets, fixed=True),
        Rule("LP061", "credential", "error", fields.credentials, fixed=True),
        Rule("LP062", "environment-in-prompt", "warning", fields.environment, fixed=True),
        Rule("LP070", "unknown-model", "info", body.unknown_models),
        Rule("LP071", "too-long", "error", body.too_long),
        Rule("LP090", "unknown-code", "warning", _unknown_codes),
    )
}
"""All rules by code."""


@read_only
@dataclass(frozen=True, slots=True)
class Finding:
    """An error or likely mistake in a prompt file.

    Args:
        code: The rule's code.
        severity: The rule's severity.
        message: A description of the problem.
        file: The name of the checked file.
        line: The line number, counted from 1.
        column: The column number, counted from 1.
        advice: The suggested fix.
        excerpt: The text of the line, with each secret shortened to its first characters.
    """

    code: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    advice: str = ""
    excerpt: str = ""


def check(
    path_or_text: str | os.PathLike[str],
    *,
    name: str | None = None,
    base_dir: str | os.PathLike[str] | None = None,
    allowed_roots: Iterable[str | os.PathLike[str]] = (),
    dialect: str | None = None,
    found_in: str | os.PathLike[str] | None = None,
) -> list[Finding]:
    """Find errors and likely mistakes in a prompt file.

    Only the file and the files it refers to are read. All environment variables and params are treated as if they were
    set.

    Args:
        path_or_text: The file's path, or the file's text if the ``str`` spans several lines or ``name`` is passed.
        name: The name that findings use for the passed text. The suffix of this name, ``.prompty`` or ``.yaml``,
            selects the file format.
        base_dir: The directory that references and includes in the text are relative to.
        allowed_roots: Additional directories that the file may refer to.
        dialect: The file's dialect; by default, the dialect is detected.
        found_in: The directory that must contain the targets of symbolic links, unless ``allowed_roots`` contains them.
            If None, every symbolic link is followed.

    Returns:
        The findings, in file order. An unreadable file is also reported as a finding.

    Raises:
        TemplateError: The dialect is unknown.
    """
    roots = tuple(map(Path, allowed_roots))
    if isinstance(path_or_text, str) and (name is not None or "\n" in path_or_text):
        base = None if base_dir is None else Path(base_dir)
        return _check_subject(Subject(path_or_text, name or "<string>", base, roots, dialect))
    path = str(Path(path_or_text))
    try:
        text = text_of_file(path) if found_in is None else text_in_place(Path(path), roots, Path(found_in))
    except PromptFileError as error:
        hit = hit_of(error, path)
        return [Finding("LP001", "error", hit.message, path, *hit.place)]
    return _check_subject(Subject(text, path, Path(path).parent, roots, dialect))


def _check_subject(subject: Subject) -> list[Finding]:
    off = {(code, line) for code, _, line in _ignored_codes(subject)}
    hits = [(rule, hit) for rule in RULES.values() for hit in islice(rule.find(subject), _MAX_PER_RULE)]
    explained = {hit.place.line for rule, hit in hits if rule.explains}
    found: list[Finding] = []
    for rule, hit in hits:
        line = hit.place.line
        is_off = not rule.fixed and not off.isdisjoint(((rule.code, 0), (rule.code, line)))
        if not is_off and not (rule.code == "LP001" and line in explained):
            head = rule.code, rule.severity, hit.message, subject.name
            found.append(Finding(*head, *hit.place, hit.advice, subject.excerpt(line)))
    return sorted(found, key=lambda each: (each.line, each.column, each.code))


_ALIKE = 0.85
_PROMPT_FIELDS = ("instruction", "extra_keys", "examples")
_TOP_FIELD = re.compile(r"""^[{ ]?["']?(\w+)["']?\s*:(?:\s*["']?(\w+))?""", re.MULTILINE)


def prompt_files(directory: Path, allowed_roots: Iterable[str | os.PathLike[str]] = ()) -> Iterator[Path]:
    """Yield the prompt files in a directory and its subdirectories, sorted by path.

    Args:
        directory: The directory to search. Hidden files, hidden directories and YAML files that aren't prompts are
            skipped.
        allowed_roots: Additional directories that symbolic links to YAML files may point into.
    """
    roots = (*allowed_roots,)
    for path in visible_files(directory):
        suffix = path.suffix.lower()
        if suffix in SUFFIXES and (suffix not in YAML_SUFFIXES or _is_prompt(path, roots, directory)):
            yield path


def _is_prompt(path: Path, roots: Sequence[str | os.PathLike[str]], directory: Path) -> bool:
    """Return True if a YAML file seems to be a prompt file, even if a field name is misspelt or the YAML is invalid."""
    try:
        fields = _TOP_FIELD.findall(text_in_place(path, roots, directory))
    except PromptFileError:
        return False
    return any(
        (name == "type" and value in TYPES) or get_close_matches(name, _PROMPT_FIELDS, 1, _ALIKE)
        for name, value in fields
    )


def schema_text() -> str:
    """Return a JSON Schema for the front matter, for use in editors.

    The schema describes Prompty v2 and allows unknown fields. It uses JSON Schema draft 7, which all editors support.
    """
    return Path(__file__).parents[1].joinpath("prompty.schema.json").read_text(encoding="utf-8")


_COMMANDS: Final[Mapping[Severity, str]] = {"error": "error", "warning": "warning", "info": "notice"}
# GitHub Actions requires these characters to be percent-encoded in workflow commands.
_OF_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_OF_PROPERTY = _OF_MESSAGE | str.maketrans({":": "%3A", ",": "%2C"})
# SARIF 2.1.0, section 3.27.10, defines the level names.
_LEVELS: Final[Mapping[Severity, str]] = {"error": "error", "warning": "warning", "info": "note"}

_SHOWN = 100


def report(findings: Sequence[Finding], files: int) -> str:
    """Format findings as text: one line per finding, the source line below each error, and a summary.

    Args:
        findings: The findings.
        files: The number of checked files.
    """
    return visible("".join(map(_lines, findings))) + _summary(findings, files)


def github(findings: Sequence[Finding], files: int) -> str:
    """Format findings as GitHub workflow commands that annotate source lines, followed by a summary.

    Args:
        findings: The findings.
        files: The number of checked files.
    """
    lines = ""
    for each in findings:
        kind, title = _COMMANDS[each.severity], f"{each.code} {RULES[each.code].name}"
        lines += command(kind, each.file, each.line, title, _message(each), each.column)
    return lines + _summary(findings, files)


def command(kind: str, file: str, line: int, title: str, message: str, column: int | None = None) -> str:
    """Format a GitHub workflow command as one line.

    Args:
        kind: ``error``, ``warning`` or ``notice``.
        file: The name of the annotated file.
        line: The number of the annotated line, counted from 1.
        title: The title of the annotation.
        message: The text of the annotation.
        column: The column number, counted from 1.
    """
    name, head = (visible(text).translate(_OF_PROPERTY) for text in (Path(file).as_posix(), title))
    at = "" if column is None else f",col={column}"
    return f"::{kind} file={name},line={line}{at},title={head}::{visible(message).translate(_OF_MESSAGE)}\n"


def sarif(findings: Sequence[Finding]) -> JsonObject:
    """Return findings as a SARIF 2.1.0 log, with paths relative to the current working directory."""
    places = {code: index for index, code in enumerate(RULES)}
    results: list[Json] = [
        {
            "ruleId": each.code,
            "ruleIndex": places[each.code],
            "level": _LEVELS[each.severity],
            "message": {"text": visible(_message(each))},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(Path(os.path.relpath(each.file)).as_posix())},
                        "region": {"startLine": each.line, "startColumn": each.column},
                    }
                }
            ],
        }
        for each in findings
    ]
    driver: JsonObject = {"name": "lazyprompt", "version": __version__, "rules": [*map(_sarif_rule, RULES.values())]}
    run: JsonObject = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _sarif_rule(rule: Rule) -> JsonObject:
    # ``python -OO`` removes docstrings, so fall back to the rule's name.
    text = " ".join((rule.find.__doc__ or rule.name).replace("``", "'").split())
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": text},
        "help": {"text": f"{text} The page 'Check prompt files' of lazyprompt's manual explains {rule.code}."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _message(finding: Finding) -> str:
    return f"{finding.message}; {finding.advice}" if finding.advice else finding.message


def _lines(finding: Finding) -> str:
    text = f"{finding.file}:{finding.line}:{finding.column}: {finding.code} {_message(finding)}\n"
    return f"{text}{_excerpt_with_caret(finding)}" if finding.severity == "error" and finding.excerpt else text


def _excerpt_with_caret(finding: Finding) -> str:
    """Return a finding's source line, with a caret below the column."""
    at = finding.column - 1
    begin = max(at - _SHOWN // 2, 0)
    before, rest = (
        visible(part.replace("\t", " ")) for part in (finding.excerpt[begin:at], finding.excerpt[at : begin + _SHOWN])
    )
    return f"    {before}{rest}\n    {' ' * cell_len(before)}^\n"


def _summary(findings: Sequence[Finding], files: int) -> str:
    counts = Counter(each.severity for each in findings)
    numbers = [_count(counts[each], each) for each in SEVERITIES if counts[each]] or ["nothing found"]
    return f"{', '.join(numbers)} in {_count(files, 'file')}\n"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 or what == 'info' else 's'}"
