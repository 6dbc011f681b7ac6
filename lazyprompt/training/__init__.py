"""Samples for fine-tuning: which text is trained, and its token ids. Read samples.py first."""

from lazyprompt._moved import attributes_of

__getattr__ = attributes_of("training.samples")
