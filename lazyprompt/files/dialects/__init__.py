"""The dialects of prompt files."""
