"""Internal helpers for the other subpackages: JSON, files, locks, secrets and trusted text. Read json.py first."""
