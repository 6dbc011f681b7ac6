"""The way from a value to its view in a notebook."""

from __future__ import annotations


def html_of(value: object) -> str:
    """Return the HTML that a notebook shows of a value."""
    from lazyprompt.inspect.notebook import html_of as view  # noqa: PLC0415  # door: a view reads all that it shows

    return view(value)
