"""The package as a whole: its public names, and what importing it costs."""

import ast
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, is_dataclass

import pytest

import lazyprompt
from support.paths import PACKAGE

HEAVY = (
    *("jinja2", "tiktoken", "pydantic", "docstring_parser", "rich", "click", "yaml", "asyncio", "ssl", "urllib3"),
    *("tokenizers", "transformers", "numpy", "PIL"),
)


def test_public_names_are_sorted_and_exist() -> None:
    assert list(lazyprompt.__all__) == sorted(lazyprompt.__all__)
    assert dir(lazyprompt) == list(lazyprompt.__all__)
    for name in lazyprompt.__all__:
        assert getattr(lazyprompt, name) is not None


def test_package_is_typed_and_type_checkers_see_its_public_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(lazyprompt.__all__)
    assert (PACKAGE / "py.typed").exists()


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ChatPromter'"):
        _ = lazyprompt.ChatPromter


@pytest.mark.parametrize(
    "code",
    [
        "import lazyprompt",
        "from lazyprompt import ChatPrompter; ChatPrompter('{input}').generate_prompt('x', model='qwen2.5')",
        "from lazyprompt import AlpacaPrompter; AlpacaPrompter('{a}').generate_prompt('x', return_dict=True)",
        "from lazyprompt import ChatFormatter; ChatFormatter('gemini').format({'role': 'user', 'content': 'x'})",
        "from lazyprompt import ApproximateTokenCounter; ApproximateTokenCounter().count_text('x')",
        "from lazyprompt.messages.tools import ToolSet; ToolSet.of([{'type': 'x'}])",
        "import lazyprompt.messages.encoding",
    ],
)
def test_heavy_dependencies_are_imported_only_when_needed(code: str) -> None:
    check = f"{code}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True)  # noqa: S603
    assert done.stdout == "[]\n"


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python 3.11.0 to 3.11.4 match ``(?:a|b)*+`` wrongly (CPython issue 106052): `{% include %}` was not found."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"(?<!\()\)(?:[*+?]|\{[0-9,]+\})\+", line)
    ]
    assert found == []


@pytest.mark.slow
def test_package_source_has_no_assert_statements() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not any(
            isinstance(node, ast.Assert) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        ), path


def _values() -> list[type]:
    public = (getattr(lazyprompt, name) for name in lazyprompt.__all__)
    return [each for each in public if isinstance(each, type) and is_dataclass(each)]


@pytest.mark.parametrize("kind", _values())
@pytest.mark.parametrize("name", ["x", "content", "text"])
def test_assigning_to_a_public_dataclass_raises_frozen_instance_error(kind: type, name: str) -> None:
    """Assigning to a name that is no field raised a TypeError about super()."""
    value: object = object.__new__(kind)
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(value, name, 1)
    with pytest.raises(FrozenInstanceError, match=name):
        delattr(value, name)
