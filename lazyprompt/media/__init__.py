"""Media that messages name by address: which may be loaded, and the loading. Read resolver.py first."""
