"""Templates: slots, Jinja, Mustache and Handlebars, and instructions made of them. Read instruction.py first."""
