"""Token counters: what a budget measures with."""
