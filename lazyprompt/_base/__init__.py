"""Tools that every other folder may use: JSON, files, locks, secrets, trusted text. Read json.py first."""
