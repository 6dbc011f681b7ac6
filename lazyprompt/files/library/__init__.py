"""Prompt libraries, in which files are found by key, language and version. Read library.py first."""
