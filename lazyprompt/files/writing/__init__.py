"""Writing prompt files: editing fields, and converting to other dialects. Read conversion.py first."""
