"""Lint rules for prompt files. Read check.py first."""
