"""Prompters: a call becomes a prompt, and a target renders it. Read prompter.py first."""
