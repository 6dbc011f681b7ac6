"""The package's tables as text: model families, providers' rules, limits, control tokens.

``tests/golden/facts`` has one line per entry. To update it: ``python tests/support/facts.py``
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from datetime import date
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = {
    "answers": "calls forms",
    "batch": "forms",
    "caching": "rules",
    "files.dialects": "dialects prompty_v1",
    "formatters": "anthropic chat_form dashscope gemini mistral ollama openai profile providers reply responses",
    "media": "fetch resolver",
    "messages": "openai_form read_langchain",
    "modules.clients": "_faults anthropic gemini ollama openai responses",
    "modules": "sources telemetry",
    "rendering": "families family_names family_tools markers tool_form",
    "safety": "special_tokens",
    "tokens": "approximate counter media openai windows",
}
FACTS = Path(__file__).parents[1] / "golden" / "facts"
PLAIN = (str, int, float, bool, type(None))


def page(folder: str) -> str:
    """Every constant of a folder's modules, one entry per line. A repeated table is replaced by its name."""
    shown: dict[int, str] = {}
    names = MODULES[folder].split()
    lines = (line for name in names for line in _constants(import_module(f"lazyprompt.{folder}.{name}"), name, shown))
    return "".join(f"{line}\n" for line in lines)


def assert_current(folder: str) -> None:
    """Compare a folder's tables with the golden file."""
    kept = (FACTS / f"{folder}.txt").read_text(encoding="utf-8")
    change = "\n".join(unified_diff(kept.splitlines(), page(folder).splitlines(), "golden", folder, n=0, lineterm=""))
    assert not change, f"tables changed:\n{change}\nIf that is intended, run: python tests/support/facts.py"


def _constants(module: ModuleType, name: str, shown: dict[int, str]) -> Iterator[str]:
    for node in ast.parse(inspect.getsource(module)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper():
                yield from _lines(f"{name}.{target.id}", vars(module)[target.id], shown)


def _lines(name: str, value: Any, shown: dict[int, str]) -> Iterator[str]:
    """One line for a plain value, or one for each entry or field."""
    entries = _entries(value)
    if not entries:
        yield f"{name} = {_plain(value)}"
    elif id(value) in shown:
        yield f"{name} = {shown[id(value)]}"
    else:
        shown[id(value)] = name
        for key, each in entries.items():
            yield from _lines(f"{name}{key}", each, shown)


def _entries(value: Any) -> dict[str, Any]:
    """The parts of a value by their path; a plain value has none."""
    if isinstance(value, Mapping):
        return {f"[{key!r}]": each for key, each in value.items()}
    if fields := getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None):
        given = {f".{name}": getattr(value, name) for name in fields}
        return {name: each for name, each in given.items() if each not in (None, False)}
    if isinstance(value, tuple | list) and not all(isinstance(each, PLAIN) for each in value):
        return {f"[{at}]": each for at, each in enumerate(value)}
    is_own = type(value).__module__.startswith("lazyprompt") and hasattr(value, "__dict__")
    return {f".{name}": each for name, each in vars(value).items()} if is_own else {}


def _plain(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r}, flags {int(value.flags)}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    if isinstance(value, (*PLAIN, bytes, tuple, list, Mapping, date)):
        return repr(value)
    return getattr(value, "__qualname__", type(value).__name__)


if __name__ == "__main__":
    for name in MODULES:
        (FACTS / f"{name}.txt").write_text(page(name), encoding="utf-8", newline="\n")
