"""Prompt files written, changed, and said in other forms."""
