"""Templates in slot, Jinja and Mustache syntax, and instructions built from them. Read instruction.py first."""
