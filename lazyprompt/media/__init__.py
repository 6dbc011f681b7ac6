"""Loads media by URL or path, within the limits of a resolver. Read resolver.py first."""
