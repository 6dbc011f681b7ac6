"""The way from a value to its view in a notebook."""


def html_of(value: object) -> str:
    """Return the HTML that a notebook shows of a value."""
    from lazyprompt.inspect.html import html_of as view  # noqa: PLC0415  # door: a view reads all that it shows

    return view(value)
