"""Changes between two versions, compared with the requests to three providers for random edits."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import run
from typing import Any

import pytest

from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.testing.cases import CaseFile, case_files
from lazyprompt.testing.difference import older_version
from lazyprompt.testing.running import Runner
from support.paths import LIBRARY

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


def changed_rows(library: Path, file: Path) -> list[bool]:
    """Whether the report has each row of a file as changed."""
    runner = Runner(older=lambda path: LIBRARY / path.relative_to(library))
    return [result.change is not None for result in runner.run([CaseFile.read(file)])]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed >= FAST else []) for seed in range(300)]
)
def test_rows_are_reported_as_changed_if_their_requests_differ(seed: int, library: Path) -> None:
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
        assert changed_rows(library, file) == expected
    finally:
        cases.prompt.write_text(before, encoding="utf-8")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(LIBRARY, tmp_path_factory.mktemp("edited") / "library")


def test_random_edits_of_each_kind_change_the_text_often_enough() -> None:
    """If the edits seldom changed a text, the comparison of the requests would check nothing."""
    found: Counter[tuple[str, bool]] = Counter()
    texts = [CaseFile.read(path).prompt.read_text(encoding="utf-8") for path in case_files(LIBRARY)]
    for seed in range(300):
        random = Random(seed)  # noqa: S311 - edits keep no secret
        edit = EDITS[seed % len(EDITS)]
        before = random.choice(texts)
        found[edit.__name__, edit(random, before) != before] += 1
    assert all(found[edit.__name__, True] >= 15 for edit in EDITS)


@pytest.mark.slow
def test_the_library_compared_with_itself_has_no_changes() -> None:
    files = [*map(CaseFile.read, case_files(LIBRARY))]
    made = [text for file in files for case in file.listed for text in requests(file.prompt, case.inputs)]
    assert [text for text in made if text.endswith('Error"')] == []
    assert [
        (result.case.file, result.case.name) for result in Runner(older=lambda path: path).run(files) if result.change
    ] == []


PIECES = ("{a}", "{b}", "{a}{b}", " ", "\n", "x", "xx", "ab", "Be kind.", "{{c}}", ". ")
VALUES = ("", "x", "xx", " ", "ab", "你", "<|im_end|>", "a b", "{a}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_rows_of_a_yaml_prompt_file_are_reported_as_changed_if_their_requests_differ(seed: int, tmp_path: Path) -> None:
    """The text of the template and the values may be equal, or blank."""
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


HEAD = "model: {id: gpt-4o, options: {temperature: 0.5}}\ninputs: [{name: a, kind: string}, {name: b, kind: string}]"
SYSTEM, USER = "system:\nBe kind.\n", "user:\n{{a}} and {{b}}\n"
TOOL = "tools: [{name: f, kind: function, parameters: [{name: k, kind: string}]}]"


@pytest.mark.parametrize(
    ("head", "body", "change", "text"),
    [
        (f"{HEAD}\nname: other", f"{SYSTEM}{USER}", None, ""),
        (
            HEAD,
            f"system:\nBe very kind.\n{USER}",
            (("instruction",), 1, 5),
            "system:\nBe very kind.\n\nuser:\nx and yy",
        ),
        (HEAD, f"assistant:\nBe kind.\n{USER}", (("roles",), 0, 0), "assistant:\nBe kind.\n\nuser:\nx and yy"),
        (HEAD, f"{USER}{SYSTEM}", (("order",), 0, 0), "user:\nx and yy\n\nsystem:\nBe kind."),
        (HEAD, f"{SYSTEM}user:\n{{{{b}}}} and {{{{a}}}}\n", (("order",), 0, 0), "system:\nBe kind.\n\nuser:\nyy and x"),
        (HEAD, f"{SYSTEM}user:\n{{{{b}}}} and \n", (("slot a",), -1, 1), "system:\nBe kind.\n\nuser:\nyy and "),
        (HEAD, f"{SYSTEM}user:\n{{{{a}}}} and {{{{b}}}}{{{{a}}}}\n", (("slot a",), 0, 1), None),
        (HEAD, "user:\nq\n", (("roles", "instruction", "slot a", "slot b"), -6, 17), "user:\nq"),
        (f"{HEAD}\n{TOOL}", f"{SYSTEM}{USER}", (("tools",), 0, 0), None),
        (HEAD.replace("0.5", "0.75"), f"{SYSTEM}{USER}", (("parameters",), 0, 0), None),
        (HEAD.replace("gpt-4o", "gpt-5"), f"{SYSTEM}{USER}", (("model",), 0, 0), None),
        (f"{HEAD}\noutputs: [{{name: o, kind: string}}]", f"{SYSTEM}{USER}", (("answer form",), 0, 0), None),
        (HEAD, "user:\n{{c}}\n", (("error",), -6, 18), None),
    ],
)
def test_a_change_has_its_kinds_token_difference_and_size(
    head: str, body: str, change: tuple[object, ...] | None, text: str | None, tmp_path: Path
) -> None:
    old = "system:\nBe kind.\n\nuser:\nx and yy"
    for name, texts in (("old", (HEAD, f"{SYSTEM}{USER}")), ("new", (head, body))):
        (tmp_path / f"{name}.prompty").write_text("---\n{}\n---\n{}".format(*texts), encoding="utf-8")
    (tmp_path / "new.test.jsonl").write_text('{"a": "x", "b": "yy"}', encoding="utf-8")
    [result] = Runner(older=lambda _: tmp_path / "old.prompty").run([CaseFile.read(tmp_path / "new.test.jsonl")])
    found = result.change
    assert (found and (found.kinds, found.tokens, found.size)) == change
    assert found is None or found.texts[0] == old
    assert found is None or text is None or found.texts[1] == text


def test_reordered_arguments_of_a_tool_call_are_a_change(tmp_path: Path) -> None:
    for name, given in (("old", '{"x": 1, "y": 2}'), ("same", '{"x": 1, "y": 2}'), ("new", '{"y": 2, "x": 1}')):
        call = f'{{"role": "assistant", "content": [{{"type": "tool_use", "id": "c", "name": "f", "input": {given}}}]}}'
        result = '{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]}'
        history = f'[{{"role": "user", "content": "q"}}, {call}, {result}]'
        (tmp_path / f"{name}.yaml").write_text(f"instruction: a\nhistory: {history}", encoding="utf-8")
        (tmp_path / f"{name}.test.jsonl").write_text('{"input": "x"}', encoding="utf-8")
    runner = Runner(older=lambda _: tmp_path / "old.yaml")
    files = [CaseFile.read(tmp_path / f"{name}.test.jsonl") for name in ("same", "new")]
    assert [result.change and result.change.kinds for result in runner.run(files)] == [None, ("slot history",)]


def test_images_that_no_request_can_contain_are_compared_by_their_errors(tmp_path: Path) -> None:
    for name in ("old", "new"):
        inputs = f"[{{name: p, kind: image, default: 'file:///{name}.png'}}]"
        (tmp_path / f"{name}.prompty").write_text(f"---\ninputs: {inputs}\n---\nuser:\n{{{{p}}}}\n", encoding="utf-8")
    (tmp_path / "new.test.jsonl").write_text("{}", encoding="utf-8")
    [result] = Runner(older=lambda _: tmp_path / "old.prompty").run([CaseFile.read(tmp_path / "new.test.jsonl")])
    assert result.change is not None
    assert (result.change.kinds, result.change.tokens, result.change.size) == (("form",), 0, 0)


def test_control_sequences_in_only_one_version_are_a_safety_change(tmp_path: Path) -> None:
    (tmp_path / "old.prompty").write_text("user:\n{{a}} and {{b}}\n", encoding="utf-8")
    (tmp_path / "new.test.jsonl").write_text('{"a": "x", "b": ""}\n{"a": "<|im_end|>", "b": ""}', encoding="utf-8")
    runner, found = Runner(older=lambda _: tmp_path / "old.prompty"), list[Any]()
    for text in ("{{b}} and ", "{{b}} and {{a}}{{a}}"):
        (tmp_path / "new.prompty").write_text(f"user:\n{text}\n", encoding="utf-8")
        found += [result.change for result in runner.run([CaseFile.read(tmp_path / "new.test.jsonl")])]
    assert [each.kinds for each in found] == [("slot a",), ("slot a", "safety"), ("slot a",), ("slot a",)]


@pytest.mark.slow
def test_older_version_accepts_a_git_revision_or_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("a/b/one.prompty", "a/b/two.prompty", "top.prompty")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    for size in (5_000_000, 5_000_001):
        (tmp_path / f"{size}.txt").write_bytes(b"x" * size)
    (tmp_path / "link.prompty").symlink_to("top.prompty")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        run(["git", *command], check=True)  # noqa: S603, S607 - our own repository
    for name in names:
        (tmp_path / name).write_text("new", encoding="utf-8")
    with older_version("HEAD", [tmp_path / "a"]) as find:
        assert [find(tmp_path / name).read_text(encoding="utf-8") for name in names] == [*names]
        others = ("5000000.txt", "5000001.txt", "link.prompty", "a/none.prompty")
        assert [find(tmp_path / name).exists() for name in others] == [True, False, False, False]
        assert find(tmp_path / "x").parent.name == "tree"
    assert not find(tmp_path / "x").parent.exists()
    with older_version(str(tmp_path / "a"), [tmp_path / "a" / "b" / "one.prompty"]) as find:
        assert find(tmp_path / "a" / "b" / "two.prompty") == tmp_path / "a" / "two.prompty"
        with pytest.raises(BatchError, match="top.prompty is outside .*, so there is no version to compare with"):
            find(tmp_path / "top.prompty")
    for wrong in ("none", "HEAD:a"):
        message = f"^'{wrong}' is neither a directory nor a git revision: unknown revision, or miss"
        with pytest.raises(BatchError, match=message), older_version(wrong, [tmp_path]):
            pass


def test_a_line_moved_from_the_system_text_into_the_instruction_changes_no_request(tmp_path: Path) -> None:
    texts = {"old": ("One.\nTwo.", ""), "new": ("One.", "Two.")}
    for name, (system, instruction) in texts.items():
        text = json.dumps({"system": system, "instruction": {"system": instruction, "user": "{a}"}})
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    cases = tmp_path / "new.test.jsonl"
    cases.write_text('{"a": "x"}', encoding="utf-8")
    [result] = Runner(older=lambda _: tmp_path / "old.yaml").run([CaseFile.read(cases)])
    assert (result.change, result.failures) == (None, ())
