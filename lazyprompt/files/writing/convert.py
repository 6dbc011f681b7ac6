"""Prompt files in other forms, with notes on the parts that a form has no place for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt.files.writing.targets import converted

if TYPE_CHECKING:
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.writing.conversion import Converted


def convert(prompty: Prompty, to: str) -> Converted:
    """Write a prompt file in another form.

    References stay references, so that no secret is written. Within the dialects of Prompty, what is the same in both
    stays as it is written, with its comments.

    Args:
        prompty: The prompt file.
        to: ``v2``, ``agentschema``, ``dotprompt``, or ``langchain-json``: a ``ChatPromptTemplate`` as LangChain's
            ``dumpd`` writes it.

    Returns:
        The text, and what that form cannot say.

    Raises:
        FormatError: There is no such form; or the template says what it has no words for: the message names the line.
    """
    return converted(prompty, to)
