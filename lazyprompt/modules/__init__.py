"""Models to ask: at providers, and on local engines. Read online.py first."""
