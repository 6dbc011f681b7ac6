"""Libraries of prompt files: keys, languages, versions. Read library.py first."""
