"""References in the front matter: their values, and the files that they may not read."""

import json
from pathlib import Path
from typing import Any

import pytest

from lazyprompt._base.files import read_regular
from lazyprompt.errors import PromptFileError, PromptFileMissingError
from lazyprompt.files.prompty import Prompty


def load_fields(front: str, base: Path | None = None, **more: Any) -> dict[str, Any]:
    return Prompty.loads(f"---\n{front}\n---\nuser:\nhi", base, **more).to_dict()


def load_error(front: str, base: Path | None = None, **more: Any) -> str:
    with pytest.raises(PromptFileError) as caught:
        load_fields(front, base, **more)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "prompts"
    inner.mkdir()
    (inner / "a.json").write_text('{"endpoint": "${env:LP_HOST}", "n": [1, true, null]}')
    (inner / "a.JSON").write_text('{"upper": 1}')
    (inner / "b.yaml").write_text("x: 1\ny: [a, b]\n")
    (inner / "c.txt").write_text("\ufefftext\n")
    (tmp_path / "secret.txt").write_text("secret")
    return inner


def test_references_are_replaced_by_their_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LP_HOST", "host")
    monkeypatch.delenv("LP_NONE", raising=False)
    front = """
metadata:
  env: ${env:LP_HOST}
  within: pre-${env:LP_HOST}:${ENV:LP_HOST}
  default: ${env:LP_NONE:http://x:1}
  json: ${file:a.json}
  upper: ${file:a.JSON}
  yaml: ${file:b.yaml}
  text: ${file:./c.txt}
  param: ${params:p}
  params: n=${params:n}
  deep: [[{a: "${env:LP_HOST}"}]]
  other: ${vault:x} ${} $x ${env
"""
    metadata = load_fields(front, folder, params={"p": {"k": [1]}, "n": 2})["metadata"]
    assert metadata == {
        "env": "host",
        "within": "pre-${env:LP_HOST}:${ENV:LP_HOST}",
        "default": "http://x:1",
        "json": {"endpoint": "host", "n": [1, True, None]},
        "upper": {"upper": 1},
        "yaml": {"x": 1, "y": ["a", "b"]},
        "text": "text\n",
        "param": {"k": [1]},
        "params": "n=${params:n}",
        "deep": [[{"a": "host"}]],
        "other": "${vault:x} ${} $x ${env",
    }


def test_references_in_the_body_and_in_values_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LP_HOST", "host")
    prompt = Prompty.loads("user:\n${env:LP_HOST} {{ q }}")
    assert prompt.render({"q": "${env:LP_HOST}"}) == "user:\n${env:LP_HOST} ${env:LP_HOST}"


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("name: ${env:LP_NONE}", "<string>:2:7: Environment variable 'LP_NONE' not set; set it or add a default"),
        ("name: ${file:b.yaml}\nmodel: ${env:LP_NONE}", "<string>:3:8: Environment variable 'LP_NONE' not set"),
        ("name: ${env:LP_NONE:}", "Environment variable 'LP_NONE' not set"),
        ("name: ${env:}", "Environment variable '' not set"),
        ("name: ${params:modle}", "unknown param 'modle' (did you mean 'model'?); params= contains 'model'"),
        ("metadata: {a: '${file:../secret.txt}'}", "'../secret.txt' is outside allowed roots"),
        ("metadata: {a: '${file:gone.txt}'}", "file 'gone.txt' not found"),
        ("metadata: {a: '${file:.}'}", "cannot be read"),
        ("metadata: {a: '${file:}'}", "'' is not a valid path"),
        ("metadata: {a: '${file:bad.json}'}", "'bad.json' is not valid JSON"),
        ("metadata: {a: '${file:bad.yaml}'}", "bad.yaml:1:5:"),
        ("metadata: {a: '${file:latin.txt}'}", "file 'latin.txt' is not valid UTF-8 at byte 1"),
        ("metadata: {a: '${file:one.yaml}'}", "circular file references: one.yaml → two.yaml → one.yaml"),
        ("metadata: {a: '${file:ask.txt}'}", "ask.txt:1:1: Environment variable 'LP_NONE' not set"),
        ("metadata: {a: '${file:needs.yaml}'}", "needs.yaml:2:4: Environment variable 'LP_NONE' not set"),
    ],
)
def test_unresolvable_reference_is_an_error_with_its_place(
    front: str, expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LP_NONE", raising=False)
    (folder / "latin.txt").write_bytes(b"a\xe9")
    unset = {"ask.txt": "${env:LP_NONE}", "needs.yaml": "a: 1\nb: ${env:LP_NONE}\n"}
    circular = {"one.yaml": "a: ${file:two.yaml}", "two.yaml": "a: ${file:one.yaml}"}
    for name, text in {"bad.json": "{", "bad.yaml": "a: [", **unset, **circular}.items():
        (folder / name).write_text(text)
    message = load_error(front, folder, params={"model": 1})
    assert expected in message
    assert message.endswith("^")


def test_referenced_file_must_be_in_the_directory_or_an_allowed_root(folder: Path) -> None:
    found = load_fields("name: ${file:../secret.txt}", folder, allowed_roots=[folder.parent])
    assert found["name"] == "secret"
    assert "outside allowed roots" in load_error("name: ${file:../secret.txt}", folder, allowed_roots=[folder / "x"])
    assert "a prompt from a string has no base directory; pass base_dir=" in load_error("name: ${file:c.txt}")


def test_missing_file_is_a_file_not_found_error(folder: Path) -> None:
    with pytest.raises(PromptFileMissingError):
        load_fields("name: ${file:gone}", folder)
    with pytest.raises(FileNotFoundError, match="gone.prompty:1:1: file not found"):
        Prompty.load(folder / "gone.prompty")


def test_file_referenced_twice_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def opening(path: Path | str, most: int, root: str | None = None) -> bytes:
        opened.append(Path(path).name)
        return read_regular(path, most, root)

    (folder / "p.prompty").write_text("---\nmetadata: {a: '${file:b.yaml}', b: '${file:b.yaml}'}\n---\n")
    monkeypatch.setattr("lazyprompt.files.yaml_nodes.read_regular", opening)
    monkeypatch.setattr("lazyprompt.files.references.read_regular", opening)
    metadata = Prompty.load(folder / "p.prompty").metadata
    assert opened == ["p.prompty", "b.yaml"]
    assert metadata["a"] == metadata["b"]
    assert json.dumps(metadata)


def test_size_of_referenced_values_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.files.references.MAX_BYTES", 10)
    twice = "metadata: {a: '${params:p}', b: '${params:p}'}"
    value = {"k": ["xx", 1]}  # a mapping, a list, two characters and a number
    assert load_fields(twice, params={"p": value})["metadata"] == {"a": value, "b": value}
    message = load_error(twice, params={"p": {"k": ["xxx", 1]}})
    assert message.startswith("<string>:2:33: the referenced values exceed 10 characters\n")


@pytest.mark.parametrize(
    ("value", "depth"), [("[['${params:p}']]", 5), ("'${file:one.yaml}'", 7), ("'${file:one.txt}'", 4)]
)
def test_depth_of_referenced_values_is_limited(
    value: str, depth: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"one.yaml": "- ${file:two.yaml}", "two.yaml": "- ${params:p}", "one.txt": "${file:two.txt}"}
    for name, text in {**texts, "two.txt": "${file:c.txt}"}.items():
        (folder / name).write_text(text)
    monkeypatch.setattr("lazyprompt.files.references.MAX_DEPTH", depth)
    front, params = f"metadata: {{a: {value}}}", {"p": {"k": [1]}}
    assert load_fields(front, folder, params=params)
    monkeypatch.setattr("lazyprompt.files.references.MAX_DEPTH", depth - 1)
    message = load_error(front, folder, params=params)
    assert f"nested deeper than {depth - 1} levels, including the referenced values" in message


def test_depths_of_separate_references_do_not_add_up(folder: Path) -> None:
    for number in range(101):
        (folder / f"d{number}.yaml").write_text("[[1]]")
    metadata = {f"k{number}": f"${{file:d{number}.yaml}}" for number in range(101)}
    assert load_fields(f"metadata: {json.dumps(metadata)}", folder)["metadata"] == {name: [[1]] for name in metadata}


def test_fault_in_a_referenced_file_is_an_error_at_the_reference(folder: Path) -> None:
    # The error named line 7 of a prompt file that has three lines.
    (folder / "inputs.yaml").write_text("\n\n\n\n\n- {name: a}\n- {name: b, kind: nmuber}\n")
    (folder / "p.prompty").write_text("---\ninputs: ${file:inputs.yaml}\n---\n{{ a }}")
    with pytest.raises(PromptFileError, match=r"p\.prompty:2:9: inputs\[1\] has an unknown kind 'nmuber'"):
        Prompty.load(folder / "p.prompty")
