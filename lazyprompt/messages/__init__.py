"""TODO: messages."""
