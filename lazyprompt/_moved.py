"""Modules under their names of version 0.1, for pickles that were made then."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

_FOLDERS = ("text", "text.chat")
_MOVED = {
    "_json": "_base.json",
    "files.writing.convert": "files.prompty",
    "formatters.media": "media.resolver",
    "history": "messages.history",
    "modules.reply": "formatters.reply",
    "prompt": "messages.prompt",
    "prompt_maker": "prompters.prompter",
    "prompter": "prompters.prompter",
    "text.chat.jinja": "chat_templates.jinja",
    "text.chat.source": "chat_templates.source",
    "text.chat.template": "chat_templates.template",
    "text.example_selection": "templates.few_shot",
    "text.few_shot": "templates.few_shot",
    "text.instruction": "templates.instruction",
    "text.jinja": "templates.jinja",
    "text.layout": "rendering.layout",
    "text.markers": "rendering.markers",
    "text.safety": "safety.policy",
    "text.slots": "templates.slots",
    "text.template": "rendering.prompt_template",
    "tokens.huggingface": "chat_templates.token_counter",
    "tools": "messages.tools",
    "trusted": "_base.trusted",
}


class MovedModules:
    """A finder of modules by their old names; ``lazyprompt`` adds it to ``sys.meta_path``."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG004 - as importlib calls it
        """Return how an old name is imported; None for all other names."""
        own = name.removeprefix("lazyprompt.")
        if own == name or (own not in _MOVED and own not in _FOLDERS):
            return None
        return ModuleSpec(name, MovedModules, is_package=own in _FOLDERS)  # type: ignore[arg-type]  # a loader by its methods

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let importlib make the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Put the module of today in the place of the one with the old name."""
        new = _MOVED.get(module.__name__.removeprefix("lazyprompt."))
        if new is not None:
            sys.modules[module.__name__] = import_module(f"lazyprompt.{new}")


def attributes_of(module: str) -> Callable[[str], object]:
    """Return ``__getattr__`` for a folder that was a module: what a pickle looks for there is in one of its files now.

    Args:
        module: The file's name, within the package.
    """

    def attribute(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(f"lazyprompt.{module}"), name)

    return attribute
