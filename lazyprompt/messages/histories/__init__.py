"""TODO: histories."""
