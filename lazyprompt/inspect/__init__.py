"""Views of a prompt for people: in a terminal, a notebook, as JSON. Read look.py first."""
