"""Prompters: a call becomes a prompt, and the prompt flat text or messages. Read prompter.py first."""

from lazyprompt._moved import attributes_of

__getattr__ = attributes_of("prompters.kinds")
