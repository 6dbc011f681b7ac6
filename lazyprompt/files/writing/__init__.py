"""Prompt files written: changed fields, and other forms. Read convert.py first."""
