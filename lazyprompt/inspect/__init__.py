"""Views of a prompt: in a terminal, in a notebook, as JSON. Read look.py first."""
