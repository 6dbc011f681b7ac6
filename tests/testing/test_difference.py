"""What changed between two versions: against the bytes of three providers' requests, for random edits."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt.errors import LazyPromptError
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.testing.cases import CaseFile, case_files
from lazyprompt.testing.running import Runner
from support.paths import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARAMS = {"judge": "gpt-4o", "deployment": "qwen-plus"}
PROVIDERS = ("openai", "anthropic", "gemini")
FAST = 80
WORDS = ("gently", "数字", "{% if true %}x{% endif %}", "{literal}", "**bold**")


def split(text: str) -> tuple[str, str]:
    """The front matter with its delimiters, and the body; a YAML prompt file is all front matter."""
    match = re.match(r"---\n.*?\n---\n", text, re.DOTALL)
    return (match[0], text[match.end() :]) if match else ("", text)


def at_word(random: Random, text: str, change: Callable[[str], str]) -> str:
    words = [*re.finditer(r"[^\W\d_]{3,}", text)]
    if not words:
        return text
    word = random.choice(words)
    return text[: word.start()] + change(word[0]) + text[word.end() :]


def a_word(random: Random, text: str) -> str:
    head, body = split(text)
    return head + at_word(random, body, lambda _: random.choice(WORDS))


def a_word_in_front(random: Random, text: str) -> str:
    head, body = split(text)
    return at_word(random, head, lambda word: word.swapcase()) + body


def a_slot_moved(random: Random, text: str) -> str:
    head, body = split(text)
    slots = [*re.finditer(r"\{\{[^{}#/]+\}\}|(?<!\{)\{\w+\}(?!\})", body)]
    if not slots:
        return text
    slot = random.choice(slots)
    rest = body[: slot.start()] + body[slot.end() :]
    at = random.choice([0, *(match.end() for match in re.finditer(r"[.\n ]", rest))])
    return head + rest[:at] + slot[0] + rest[at:]


def a_role(random: Random, text: str) -> str:
    roles = [*re.finditer(r"^(system|user|assistant)(?=[:\[])|role \"(\w+)\"|role: (\w+)", text, re.MULTILINE)]
    if not roles:
        return text
    found = random.choice(roles)
    name = next(filter(None, found.groups()))
    other = random.choice([role for role in ("system", "user", "assistant", "model") if role != name])
    return text[: found.start()] + found[0].replace(name, other) + text[found.end() :]


def a_tool(random: Random, text: str) -> str:
    places = [*re.finditer(r"(?:description|required|name|kind): ([^,}\n]+)", text)]
    if not places:
        return text
    found = random.choice(places)
    return text[: found.start(1)] + random.choice(["other", "string", "false", found[1] + "s"]) + text[found.end(1) :]


def white_space(random: Random, text: str) -> str:
    places = [*re.finditer(r"\n+| +", text)]
    found = random.choice(places)
    return text[: found.end()] + random.choice(["\n", " ", "  ", "\n\n"]) + text[found.end() :]


def a_comment(random: Random, text: str) -> str:
    head, body = split(text)
    if head and random.random() < 0.6:
        lines = head.splitlines(keepends=True)
        lines.insert(random.randrange(1, len(lines)), "# A comment.\n")
        return "".join(lines) + body
    if head:
        return head + body + random.choice(["{# A comment. #}", "{{! A comment. }}"])
    return f"# A comment.\n{text}"


def a_key_moved(random: Random, text: str) -> str:
    head, body = split(text)
    top = head.removeprefix("---\n").removesuffix("---\n") or body
    fields = re.split(r"(?m)^(?=\w)", top)
    random.shuffle(fields)
    moved = "".join(fields)
    return f"---\n{moved}---\n{body}" if head else moved


EDITS = (a_word, a_word_in_front, a_slot_moved, a_role, a_tool, white_space, a_comment, a_key_moved)


def requests(path: Path, inputs: Any) -> list[str]:
    """The bytes of the requests, or the reason why there is none."""
    found: list[str] = []
    for provider in PROVIDERS:
        try:
            if path.suffix == ".yaml":
                made: Any = PromptFile.load(path).prompter.generate_prompt(inputs, format=provider)
            else:
                made = Prompty.load(path, params=PARAMS).request(inputs, provider=provider)
        except LazyPromptError as error:
            made = type(error).__name__
        found.append(json.dumps(made))
    return found


def changed(library: Path, file: Path) -> list[bool]:
    """Whether the report has each row of a file as changed."""
    runner = Runner(older=lambda path: LIBRARY / path.relative_to(library))
    return [result.change is not None for result in runner.run([CaseFile.read(file)])]


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed >= FAST else []) for seed in range(300)]
)
def test_the_rows_reported_are_those_whose_requests_differ(seed: int, library: Path) -> None:
    random = Random(seed)  # noqa: S311 - edits keep no secret
    edit = EDITS[seed % len(EDITS)]
    file = random.choice([*case_files(library)])
    cases = CaseFile.read(file)
    before = cases.prompt.read_text(encoding="utf-8")
    cases.prompt.write_text(edit(random, before), encoding="utf-8")
    try:
        expected = [
            requests(LIBRARY / cases.prompt.relative_to(library), case.inputs) != requests(cases.prompt, case.inputs)
            for case in cases.listed
        ]
        assert changed(library, file) == expected
    finally:
        cases.prompt.write_text(before, encoding="utf-8")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(LIBRARY, tmp_path_factory.mktemp("edited") / "library")


def test_the_edits_of_each_kind_change_something_and_nothing() -> None:
    """An oracle of edits that all do the same would hold for nothing."""
    found: Counter[tuple[str, bool]] = Counter()
    texts = [CaseFile.read(path).prompt.read_text(encoding="utf-8") for path in case_files(LIBRARY)]
    for seed in range(300):
        random = Random(seed)  # noqa: S311 - edits keep no secret
        edit = EDITS[seed % len(EDITS)]
        before = random.choice(texts)
        found[edit.__name__, edit(random, before) != before] += 1
    assert all(found[edit.__name__, True] >= 15 for edit in EDITS)


@pytest.mark.slow
def test_the_library_against_itself_has_no_change() -> None:
    files = map(CaseFile.read, case_files(LIBRARY))
    assert [
        (result.case.file, result.case.name) for result in Runner(older=lambda path: path).run(files) if result.change
    ] == []


PIECES = ("{a}", "{b}", "{a}{b}", " ", "\n", "x", "xx", "ab", "Be kind.", "{{c}}", ". ")
VALUES = ("", "x", "xx", " ", "ab", "你", "<|im_end|>", "a b", "{a}")


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_a_yaml_prompt_file_change_where_their_requests_differ(seed: int, tmp_path: Path) -> None:
    """Its own text and values may have the same letters, and be blank."""
    random = Random(seed)  # noqa: S311 - as above
    paths = tmp_path / "old.yaml", tmp_path / "new.yaml"
    texts = {name: "{a}" + "".join(random.choices(PIECES, k=random.randrange(5))) for name in ("system", "user")}
    for path in paths:
        path.write_text(json.dumps({"instruction": texts}), encoding="utf-8")
        texts[random.choice(["system", "user"])] = "{a}" + "".join(random.choices(PIECES, k=random.randrange(5)))
    rows = [{name: random.choice(VALUES) for name in ("a", "b", "input")[: random.choice([2, 3])]} for _ in range(8)]
    cases = tmp_path / "new.test.jsonl"
    cases.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    slots = [PromptFile.load(path).prompter.slots for path in paths]
    old, new = (
        [requests(path, {name: row[name] for name in row if name in (*names, "input")}) for row in rows]
        for path, names in zip(paths, slots, strict=True)
    )
    found = [result.change is not None for result in Runner(older=lambda _: paths[0]).run([CaseFile.read(cases)])]
    assert found == [before != after for before, after in zip(old, new, strict=True)]


def test_a_line_moved_from_the_system_text_into_the_instruction_changes_no_request(tmp_path: Path) -> None:
    texts = {"old": ("One.\nTwo.", ""), "new": ("One.", "Two.")}
    for name, (system, instruction) in texts.items():
        text = json.dumps({"system": system, "instruction": {"system": instruction, "user": "{a}"}})
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    cases = tmp_path / "new.test.jsonl"
    cases.write_text('{"a": "x"}', encoding="utf-8")
    [result] = Runner(older=lambda _: tmp_path / "old.yaml").run([CaseFile.read(cases)])
    assert (result.change, result.failures) == (None, ())
