"""Messages, histories, tools and prompts: the values that all other folders pass on. Read msg.py first."""

from lazyprompt._moved import attributes_of

__getattr__ = attributes_of("messages.msg")
