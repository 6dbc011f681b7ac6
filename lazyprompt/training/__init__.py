"""Samples for fine-tuning: which text is trained, and its token ids. Read samples.py first."""
