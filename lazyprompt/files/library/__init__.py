"""Prompts by their keys, languages and versions."""
