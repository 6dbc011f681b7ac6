"""YAML in prompt files yields only text, numbers, lists and maps, and a limited number of them.

Related tests: tests/files/test_prompt_file.py (tags, aliases, depth, documents), test_prompty.py (bombs).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from lazyprompt import Prompty
from lazyprompt.errors import PromptFileError
from lazyprompt.files.prompt_file import PromptFile
from support.memory import peak_of


def load_front_matter(text: str, tmp_path: Path) -> object:
    return Prompty.loads(f"---\n{text}\n---\nuser:\nhi", tmp_path).metadata


def load_prompt_file(text: str, tmp_path: Path) -> object:
    (tmp_path / "f.yaml").write_text(text)
    return PromptFile.load(tmp_path / "f.yaml")


def load_reference(text: str, tmp_path: Path) -> object:
    (tmp_path / "f.yaml").write_text(text)
    return Prompty.loads("---\nmetadata: ${file:f.yaml}\n---\nhi", tmp_path).metadata


WAYS = pytest.mark.parametrize(
    "way", [load_front_matter, load_prompt_file, load_reference], ids=lambda way: way.__name__
)


def nested_aliases(levels: int) -> str:
    rows = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels))]
    return "metadata:\n  " + "\n  ".join(rows)


def count_values(value: object) -> int:
    """The number of values with all aliases expanded."""
    if not isinstance(value, dict | list):
        return 1
    held = cast("dict[str, object] | list[object]", value)
    return 1 + sum(map(count_values, held.values() if isinstance(held, dict) else held))


@WAYS
def test_nested_yaml_aliases_count_as_their_expanded_values(way: Callable[[str, Path], object], tmp_path: Path) -> None:
    """The naive version loads a bomb of 9 lines, which expands to 10 ** 9 values."""
    assert count_values(yaml.safe_load(nested_aliases(5))) > 20_000

    def load() -> None:
        with pytest.raises(PromptFileError, match=r":\d+:\d+: .*more than 100000 values, with aliases expanded"):
            way(nested_aliases(9), tmp_path)

    assert peak_of(load) < 20_000_000


@WAYS
def test_yaml_aliases_of_a_long_text_count_as_their_expanded_characters(
    way: Callable[[str, Path], object], tmp_path: Path
) -> None:
    """The naive version returns 100 MB for a file of 1 MB."""
    bomb = f"metadata:\n  a: &a {'x' * 1_000_000}\n  b: [{', '.join(['*a'] * 100)}]"
    assert sum(map(len, yaml.load(bomb, yaml.CSafeLoader)["metadata"]["b"])) == 100_000_000
    with pytest.raises(PromptFileError, match="more than 5000000 characters, with aliases expanded"):
        way(bomb, tmp_path)


@WAYS
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("!!python/object/apply:os.getcwd []", str),
        ("!!python/name:os.system", object),
        ("!!python/object/new:collections.Counter [abc]", object),
        ("!!python/tuple [1]", tuple),
        ("!!python/module:os", object),
    ],
)
def test_python_tags_in_yaml_are_refused(
    way: Callable[[str, Path], object], tmp_path: Path, text: str, kind: type[object]
) -> None:
    """The naive version calls whatever the file names."""
    made = yaml.load(text, yaml.UnsafeLoader)  # noqa: S506 - that is the naive version
    assert isinstance(made, kind)
    with pytest.raises(PromptFileError, match=r":\d+:\d+: .*the tag !!python/.* is not supported"):
        way(f"metadata:\n  a: {text}", tmp_path)


@WAYS
@pytest.mark.parametrize(
    ("text", "naive", "message"),
    [
        ("x: 1\n  x: 2", {"x": 2}, "duplicate key 'x'"),
        ("<<: {x: 1}\n  y: 2", {"x": 1, "y": 2}, r"merge keys \(<<\) are not supported"),
        ("a: 2024-01-01", None, None),
        ("a: 0o17", None, None),
        ("a: " + "9" * 5000, ValueError, r"the number has too many digits \(5000\)"),
        ("? [a, b]\n  : 1", yaml.YAMLError, "a key must be text, not a list"),
        ("a: !!int 5", {"a": 5}, "the tag !!int is not supported"),
        ("%TAG ! tag:yaml.org,2002:python/", yaml.YAMLError, "cannot start any token"),
    ],
)
def test_ambiguous_yaml_is_refused_or_read_as_text(
    way: Callable[[str, Path], object], tmp_path: Path, text: str, naive: Any, message: str | None
) -> None:
    """The naive version takes the last of two keys, merges maps, makes dates, and fails with errors of its own."""
    whole = f"metadata:\n  {text}"
    if isinstance(naive, dict):
        assert yaml.safe_load(whole)["metadata"] == naive
    elif naive is not None:
        with pytest.raises(naive):
            yaml.safe_load(whole)
    if message is None and way is not load_prompt_file:
        assert f"'a': {text.removeprefix('a: ')!r}" in str(way(whole, tmp_path))
    else:
        with pytest.raises(PromptFileError, match=rf":\d+:\d+: .*{message or 'unknown field .metadata'}"):
            way(whole, tmp_path)
