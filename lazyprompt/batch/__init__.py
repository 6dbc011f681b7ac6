"""Rows of data in bulk: a line of output for each, or a model's answer. Read render.py first."""
