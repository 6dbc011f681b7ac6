"""A model's own chat template, rendered with its text and values told apart. Read template.py first."""
