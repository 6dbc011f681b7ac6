"""YAML prompt files."""


class PromptFile:
    """A prompt file."""
