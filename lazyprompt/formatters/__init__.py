"""Formatting messages as provider payloads, and parsing provider responses. Read formatter.py first."""
