"""Views of a prompt for terminals and notebooks, and as JSON. Read look.py first."""
