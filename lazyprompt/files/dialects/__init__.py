"""The dialects of prompt files. Read dialects.py first."""
