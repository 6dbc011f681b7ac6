"""Prompts kept in files."""
