"""Loads media files from paths and URLs within configured limits. Start with ``resolver.py``."""
