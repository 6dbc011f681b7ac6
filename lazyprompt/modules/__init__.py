"""Adapters to models: at providers, and on engines of one's own."""
