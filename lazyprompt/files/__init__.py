"""Prompts in files: loaded, checked, filled, converted. Read prompty.py first."""
