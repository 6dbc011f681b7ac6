"""Token counters, and the context windows of known models. Read counter.py first."""
