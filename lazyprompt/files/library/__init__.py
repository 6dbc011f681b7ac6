"""Prompt libraries: files found by key, language and version. Read library.py first."""
