"""Adapters for the official clients of model providers, with one module for each API. Read openai.py first."""
