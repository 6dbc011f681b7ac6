"""A rendered prompt shown to people."""
