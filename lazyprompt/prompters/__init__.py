"""Prompters: a call becomes a prompt, and the prompt flat text or messages. Read prompter.py first."""

from importlib import import_module


def __getattr__(name: str) -> object:
    """Return what version 0.1 had here: ``prompters`` was a module, and pickles name it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module("lazyprompt.prompters.kinds"), name)
