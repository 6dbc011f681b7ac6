"""Adapters for the official clients of providers, with one module each. Start with ``openai.py``."""
