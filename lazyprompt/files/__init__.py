"""Loading, checking, filling and converting prompt files. Read prompty.py first."""
