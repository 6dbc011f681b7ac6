"""The dialects of prompt files, each read as Prompty v2. Read table.py first."""
