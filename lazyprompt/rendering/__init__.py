"""TODO: rendering."""
