"""Prompts in files: loading, checking, filling and converting. Read prompty.py first."""
