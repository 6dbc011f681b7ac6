"""Snapshots of prompts: a YAML file beside a file of cases, with the messages and tools of each case."""

from __future__ import annotations

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
        stem = cases.name.rpartition(".")[0]
        self.path = cases.with_name(f"{stem}.snapshots.yaml")
        self._update = update
        self._kept: JsonObject = {}
        self._used: JsonObject = {}
        if self.path.exists():
            source = Source(text_of_file(str(self.path)), str(self.path))
            self._kept = {name: plain(node) for name, node in source.mapping_of(Reader(source).read(), "it").items()}

    def compared(self, name: str, case: RenderedCase) -> tuple[str | None, str]:
        """Return the text of a snapshot, None if there is none, and that of the prompt.

        Args:
            name: The name of the snapshot.
            case: The prompt.
        """
        payload = {**cast("JsonObject", case.source.prompter.target("openai").render(case.prompt))}
        found = _dump(payload)
        if self._update:
            self._used[name] = payload
            return found, found
        return (_dump(self._kept[name]) if name in self._kept else None), found

    def save(self) -> bool:
        """Write the snapshots that were updated; return True if the file changed.

        Raises:
            OSError: It cannot be written.
        """
        if not self._update or (self._used == self._kept and self.path.exists() == bool(self._used)):
            return False
        if self._used:
            write_whole(self.path, _dump(self._used).encode())
        else:
            self.path.unlink(missing_ok=True)
        return True


def _dump(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000)
    return text
