"""Checks of prompt files: faults, and risks. Read check.py first."""
