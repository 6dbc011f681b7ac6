"""Prompters: a call becomes a prompt, and a target renders it. Read prompter.py first."""

from lazyprompt._moved import attributes_of

__getattr__ = attributes_of("prompters.kinds")
