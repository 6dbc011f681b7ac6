"""Templates: slots, Jinja and Mustache, and instructions made of them. Read instruction.py first."""
