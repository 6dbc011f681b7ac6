"""Prompters, which fill a prompt for each call and render it. Read prompter.py first."""
