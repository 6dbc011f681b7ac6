"""TODO: templates."""
