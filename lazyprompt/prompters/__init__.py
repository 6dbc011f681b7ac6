"""TODO: prompters."""
