"""Samples for fine-tuning: which text is trained, and its token ids. Read samples.py first."""

from importlib import import_module


def __getattr__(name: str) -> object:
    """Return what version 0.1 had here: ``training`` was a module, and pickles name it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module("lazyprompt.training.samples"), name)
