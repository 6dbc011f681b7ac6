"""Payloads of providers from one list of messages, and messages from answers. Read formatter.py first."""
