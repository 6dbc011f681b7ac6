"""Flat text: prompt templates, the markers of model families, and layouts. Read prompt_template.py first."""
