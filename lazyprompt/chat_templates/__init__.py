"""A model's own chat template, rendered so that template text and values stay separate. Read template.py first."""
