"""Writing of prompt files: edited fields, and other dialects. Read conversion.py first."""
