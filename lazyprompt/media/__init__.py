"""TODO: media."""
