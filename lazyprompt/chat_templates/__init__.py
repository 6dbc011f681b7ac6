"""A model's own chat template, rendered with its text and values kept apart. Read template.py first."""
