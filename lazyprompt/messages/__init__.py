"""Messages, histories, tools and prompts: the values that all other folders pass on. Read msg.py first."""

from importlib import import_module


def __getattr__(name: str) -> object:
    """Return what version 0.1 had here: ``messages`` was a module, and pickles name it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module("lazyprompt.messages.msg"), name)
