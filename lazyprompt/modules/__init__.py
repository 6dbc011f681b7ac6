"""Clients for hosted models and local inference engines. Start with ``online.py``."""
