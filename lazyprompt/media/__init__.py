"""Loads media files from paths and URLs within configured limits. Read resolver.py first."""
