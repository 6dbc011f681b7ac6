"""Snapshots of prompts: a YAML file beside a file of cases, with the messages and tools of each case."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Any, cast

import yaml

from lazyprompt._base.files import write_whole
from lazyprompt.files.yaml_nodes import Reader, Source, plain, text_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.testing.rendered import RenderedCase


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class's signature
        return True


def _block(dumper: Any, text: str) -> yaml.ScalarNode:  # noqa: ANN401 - types-PyYAML does not know its parameters
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
    return node


_Dumper.add_representer(str, _block)


class Snapshots:
    """The snapshots of a file of cases.

    Args:
        cases: The file of cases.
        update: True to take prompts as they are.
    """

    def __init__(self, cases: Path, *, update: bool = False) -> None:
        self._path = cases.with_name(f"{cases.name.rpartition('.')[0]}.snapshots.yaml")
        self._update = update
        self._kept: JsonObject = {}
        self._used: JsonObject = {}
        if self._path.exists():
            source = Source(text_of_file(str(self._path)), str(self._path))
            fields = source.mapping_of(Reader(source).read(), "a file of snapshots")
            self._kept = {name: plain(node) for name, node in fields.items()}

    def fault(self, name: str, case: RenderedCase) -> tuple[str, str, str] | None:
        """Return a message, no slot and the lines that differ; None if a prompt is that of its snapshot.

        Args:
            name: The name of the snapshot.
            case: The prompt.
        """
        payload = {**cast("JsonObject", case.source.prompter.target("openai").render(case.prompt))}
        if self._update:
            self._used[name] = payload
            return None
        if name not in self._kept:
            return "there is no snapshot yet; --update writes it", "", ""
        expected, found = (_dump(each).splitlines() for each in (self._kept[name], payload))
        lines = [*unified_diff(expected, found, "snapshot", "prompt", lineterm="")][2:]
        return ("the prompt differs from its snapshot; --update takes it", "", "\n".join(lines)) if lines else None

    def save(self) -> None:
        """Write the snapshots, if they are to be updated.

        Raises:
            OSError: They cannot be written.
        """
        if not self._update or self._used == self._kept:
            return
        if self._used:
            write_whole(self._path, _dump(self._used).encode())
        else:
            self._path.unlink(missing_ok=True)


def _dump(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000)
    return text
