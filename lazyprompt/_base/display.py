"""HTML display of values in notebooks."""

from __future__ import annotations


def html_of(value: object) -> str:
    """Render a value as HTML for a notebook."""
    from lazyprompt.inspect.notebook import html_of as view  # noqa: PLC0415  # door: a view reads all that it shows

    return view(value)
