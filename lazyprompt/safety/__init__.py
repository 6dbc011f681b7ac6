"""Detecting and neutralising control sequences in untrusted text. Read policy.py first."""
