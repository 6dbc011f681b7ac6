"""The official clients of providers, one file each. Read openai.py first."""
